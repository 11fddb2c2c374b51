"""Which examples come next: endless, seeded streams of indices whose position can be saved and restored."""

from typing import Any

import torch
from torch import Tensor

from karat.data.blocks import Blocks


class ShuffledStream:
    """Yield batches from one shuffled pass over the items after the other; no item is left out or repeated.

    Batches run across the border of two passes, so all have the same size. Items in `blocks`, one number for each, come
    in the order of `block_order`.

    >>> stream = ShuffledStream(torch.arange(3), torch.Generator().manual_seed(0))
    >>> sorted(torch.cat([stream.next(2) for _ in range(3)]).tolist())
    [0, 0, 1, 1, 2, 2]
    """

    def __init__(self, items: Tensor, generator: torch.Generator, blocks: Blocks | None = None) -> None:
        self._items = items
        self._generator = generator
        self._blocks = blocks
        self._queue = items[:0]

    def next(self, count: int) -> Tensor:
        """Return the next items."""
        while len(self._queue) < count:
            order = self._order()
            self._queue = torch.cat([self._queue, self._items[order]])
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return what is left of this pass and the generator's state."""
        return {"queue": self._queue.clone(), "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self._queue = state["queue"]
        self._generator.set_state(state["generator"])

    def _order(self) -> Tensor:
        if self._blocks is None:
            return torch.randperm(len(self._items), generator=self._generator)
        return block_order(self._blocks, self._generator)


def block_order(blocks: Blocks, generator: torch.Generator) -> Tensor:
    """Return all rows, shuffled so that only so many blocks are read from at a time.

    The blocks are shuffled, and then the rows of each `together` blocks among themselves.

    >>> order = block_order(Blocks(torch.tensor([7, 7, 8, 8, 9, 9]), together=2), torch.Generator().manual_seed(0))
    >>> sorted(order[:4].tolist()), sorted(order[4:].tolist())
    ([2, 3, 4, 5], [0, 1])
    """
    _, numbers = blocks.numbers.unique(return_inverse=True)
    turns = torch.randperm(int(numbers.max()) + 1, generator=generator) // blocks.together
    rows = torch.randperm(len(numbers), generator=generator)
    return rows[turns[numbers[rows]].argsort(stable=True)]


class BalancedStream:
    """Yield batches that hold every class equally often, each class from a shuffled stream of its own.

    What cannot be shared out equally goes to a shuffled turn of the classes.

    >>> labels = torch.tensor([0, 0, 0, 1, 2, 2])
    >>> stream = BalancedStream(labels, torch.Generator().manual_seed(0))
    >>> labels[stream.next(9)].bincount().tolist()
    [3, 3, 3]
    """

    def __init__(self, labels: Tensor, generator: torch.Generator) -> None:
        classes = labels.unique()
        self._classes = ShuffledStream(torch.arange(len(classes)), generator)
        self._members = [ShuffledStream((labels == c).nonzero().flatten(), generator) for c in classes]

    def next(self, count: int) -> Tensor:
        """Return the next indices, ordered by class."""
        shares = self._classes.next(count).bincount(minlength=len(self._members)).tolist()
        return torch.cat([members.next(share) for members, share in zip(self._members, shares, strict=True)])

    def state_dict(self) -> dict[str, Any]:
        """Return the positions of all streams."""
        return {
            "classes": self._classes.state_dict(),
            "members": [members.state_dict() for members in self._members],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self._classes.load_state_dict(state["classes"])
        for members, saved in zip(self._members, state["members"], strict=True):
            members.load_state_dict(saved)
