"""Given labels with what is known of their origin, and labels drawn by a noise matrix."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from karat.errors import UserError
from karat.noise_matrix import ClassMap, check_transition

# truck -> automobile, bird -> airplane, cat <-> dog, deer -> horse; the other five classes stay.
CIFAR10_CLASS_MAP: ClassMap = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Given labels with what is known of their origin: the true labels, and the transition asked for.

    A true label of -1 is known to be none of the classes: an open-set example.
    """

    given: Tensor
    true: Tensor | None
    classes: int
    transition: Tensor | None

    @property
    def rate(self) -> float | None:
        """Return the share of given labels that are wrong; None where the true labels are unknown."""
        return None if self.true is None else (self.given != self.true).double().mean().item()

    @property
    def realised_transition(self) -> Tensor | None:
        """Return the shares [true, given] that occurred; the row of a class without examples is NaN.

        Open-set examples have no row and are left out.
        """
        if self.true is None:
            return None
        inside = self.true >= 0
        pairs = torch.bincount(self.true[inside] * self.classes + self.given[inside], minlength=self.classes**2)
        counts = pairs.view(self.classes, self.classes).double()
        return counts / counts.sum(dim=1, keepdim=True)

    def subset(self, indices: Tensor) -> "NoisyLabels":
        """Return the labels at these indices."""
        return replace(self, given=self.given[indices], true=None if self.true is None else self.true[indices])


def check_labels(labels: Tensor, classes: int, source: str = "The labels", lowest: int = 0) -> None:
    """Raise a UserError unless the labels are one row of class numbers; `lowest` is -1 where none of them is legal."""
    if labels.dim() != 1 or labels.dtype not in _INTEGERS:
        kind = str(labels.dtype).removeprefix("torch.")
        raise UserError(f"{source} have shape {tuple(labels.shape)} and type {kind}: give one integer per example.")
    if len(labels) and (labels.min() < lowest or labels.max() >= classes):
        outside = ", and -1 what is none of them" if lowest < 0 else ""
        raise UserError(
            f"{source} reach from {labels.min().item()} to {labels.max().item()}: "
            f"number the {classes} classes 0 to {classes - 1}{outside}."
        )


_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def corrupt(labels: Tensor, transition: Tensor, generator: torch.Generator) -> NoisyLabels:
    """Draw each given label from the row of its true label, independently.

    >>> swapped = torch.eye(3)[[1, 2, 0]]
    >>> noisy = corrupt(torch.tensor([0, 1, 2]), swapped, torch.Generator())
    >>> noisy.given.tolist(), noisy.rate
    ([1, 2, 0], 1.0)
    """
    classes = len(transition)
    check_transition(transition, classes)
    check_labels(labels, classes)
    true = labels.long()
    given = true.clone()
    for label in range(classes):  # class by class: a row per example would be N × classes numbers
        members = (true == label).nonzero().squeeze(1)
        if len(members):
            given[members] = torch.multinomial(
                transition[label].double(), len(members), replacement=True, generator=generator
            )
    return NoisyLabels(given, true, classes, transition)
