"""Which examples are judged, and by whose eyes: parts of them, each judged by what never saw its labels."""

from typing import NamedTuple

import torch
from torch import Tensor

from karat.methods.karat.constants import VerdictConstants


class View(NamedTuple):
    """Features of the noisy and of the trusted examples."""

    noisy: Tensor
    trusted: Tensor


class Labels(NamedTuple):
    """The given labels, the trusted ones, and how many classes there are."""

    given: Tensor
    trusted: Tensor
    classes: int

    @property
    def trusted_shares(self) -> Tensor:
        """Return the share of each class among the trusted examples; a class that they lack has none."""
        return self.trusted.bincount(minlength=self.classes) / max(len(self.trusted), 1)


class Folds(NamedTuple):
    """Which part each example belongs to.

    A trusted one whose part is -1 is learned by all heads, because it is the only one of its class. A noisy one whose
    part is -1 is learned by none, where there are more of them than heads need, and judged by all of them together.
    """

    parts: int
    noisy: Tensor
    trusted: Tensor

    @property
    def learned(self) -> Tensor:
        """Return the noisy examples that heads learn from."""
        return (self.noisy >= 0).nonzero().flatten()

    @property
    def others(self) -> Tensor:
        """Return the noisy examples that no head learns from."""
        return (self.noisy < 0).nonzero().flatten()


def deal(labels: Labels, generator: torch.Generator, constants: VerdictConstants) -> Folds:
    """Deal the examples into parts, trusted ones class by class: no part has all that there are of a class."""
    parts = constants.folds
    order = torch.randperm(len(labels.given), generator=generator)
    most = min(constants.most_learned, constants.most_numbers // (parts * len(constants.strengths) * labels.classes))
    noisy = torch.where(order < most, order % parts, -1)
    trusted = torch.full_like(labels.trusted, -1)
    order = torch.randperm(len(trusted), generator=generator)
    order = order[labels.trusted[order].argsort(stable=True)]
    trusted[order] = torch.arange(len(order)) % parts
    alone = labels.trusted.bincount(minlength=labels.classes) < 2
    trusted[alone[labels.trusted]] = -1
    return Folds(parts, noisy, trusted)
