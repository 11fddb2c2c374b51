"""Which examples the next batch has."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from karat.data.blocks import Blocks
from karat.data.samplers import BalancedStream, ShuffledStream


class Streams:
    """The noisy rows of the phase, shuffled, and the trusted ones, every class equally often or shuffled as well.

    `blocks` are those of the noisy rows where neighbours are read at once.
    """

    def __init__(
        self, noisy: int, trusted_labels: Tensor, balanced: bool, seeds: torch.Generator, blocks: Blocks | None = None
    ) -> None:
        self._all, self._blocks = torch.arange(noisy), blocks
        self._generator = new_generator(seeds)
        trusted = new_generator(seeds)
        self.restrict(None)
        self.trusted: BalancedStream | ShuffledStream = (
            BalancedStream(trusted_labels, trusted)
            if balanced and len(trusted_labels)
            else ShuffledStream(torch.arange(len(trusted_labels)), trusted)
        )

    def restrict(self, rows: Tensor | None) -> None:
        """Begin a pass over these noisy rows, None for all."""
        self.rows = self._all if rows is None else rows
        blocks = self._blocks and self._blocks._replace(numbers=self._blocks.numbers[self.rows])
        self.noisy = ShuffledStream(self.rows, self._generator, blocks)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows of the phase and the positions of both streams."""
        return {"rows": self.rows, "noisy": self.noisy.state_dict(), "trusted": self.trusted.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.restrict(state["rows"])
        self.noisy.load_state_dict(state["noisy"])
        self.trusted.load_state_dict(state["trusted"])


def new_generator(seeds: torch.Generator) -> torch.Generator:
    """Return a generator with a seed that is drawn from another one."""
    return torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=seeds)))
