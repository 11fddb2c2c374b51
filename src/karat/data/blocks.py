"""Images inside larger files: read when they are asked for, each alone or a block of neighbours at once."""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

KEPT_BYTES = 256 * 2**20


class KeptBlocks:
    """The blocks that were asked for last, up to so many bytes; threads that want the same one wait for one reading.

    >>> kept = KeptBlocks(most=2)
    >>> for key in "abacb":
    ...     print(kept.get(key, 1, lambda: f"read {key}"), *kept.keys)
    read a a
    read b a b
    read a b a
    read c a c
    read b c b
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = KEPT_BYTES if most is None else most
        self._lock = Lock()
        self._found: OrderedDict[Hashable, tuple[int, Future[Any]]] = OrderedDict()
        self._bytes = 0

    @property
    def keys(self) -> list[Hashable]:
        """Return which blocks are kept, the one that was asked for last at the end."""
        return list(self._found)

    def get(self, key: Hashable, size: int, load: Callable[[], Any]) -> Any:
        """Return what a block holds; what was asked for longest ago makes room for it."""
        with self._lock:
            wanted = key not in self._found
            if wanted:
                self._found[key] = size, Future()
                self._bytes += size
            self._found.move_to_end(key)
            _, future = self._found[key]
            while self._bytes > self.most and len(self._found) > 1:
                self._bytes -= self._found.popitem(last=False)[1][0]
        if wanted:
            try:
                future.set_result(load())
            except BaseException as error:
                self._forget(key, future)
                future.set_exception(error)
        return future.result()

    def _forget(self, key: Hashable, future: Future[Any]) -> None:
        """Let the next one try again what could not be read."""
        with self._lock:
            size, kept = self._found.get(key, (0, None))
            if kept is future:
                del self._found[key]
                self._bytes -= size


@dataclass(frozen=True)
class Block:
    """Neighbours in a file that are read at once: who they are, how many bytes they have, and how they are read."""

    key: Hashable
    size: int
    load: Callable[[], Any]
    kept: KeptBlocks

    def content(self) -> Any:
        """Return what the block holds, from memory where it was asked for lately."""
        return self.kept.get(self.key, self.size, self.load)


@dataclass(frozen=True)
class Stored:
    """An image inside a larger file.

    `name` is what to call it, `mark` what tells it from another one of its name before it is read. `block` are the
    neighbours that are read with it; None: it is read alone.
    """

    name: str
    mark: str
    read: Callable[[], bytes]
    block: Block | None = None


class Blocks(NamedTuple):
    """The number of each row's block, and from how many blocks rows may be drawn in turns."""

    numbers: Tensor
    together: int


def blocks_of(images: Iterable[object]) -> Blocks | None:
    """Return the blocks of images; None where some have none, or where all blocks stay in memory.

    Half of what is kept is for the blocks that rows are drawn from, the other half for those that come next.
    """
    known: dict[Hashable, int] = {}
    numbers, largest, most = array("q"), 1, 0
    for image in images:
        block = image.block if isinstance(image, Stored) else None
        if block is None:
            return None
        numbers.append(known.setdefault(block.key, len(known)))
        largest, most = max(largest, block.size), block.kept.most
    together = max(1, most // 2 // largest)
    return Blocks(torch.tensor(numbers), together) if len(known) > together else None
