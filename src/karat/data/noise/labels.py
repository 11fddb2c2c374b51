"""Label noise as a matrix: `transition[true, given]` is the chance that a true label is given as another."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from karat.errors import UserError

ClassMap = Mapping[int, int]

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


def uniform_transition(classes: int, rate: float) -> Tensor:
    """Redraw a share of the labels from ALL classes: rate · (classes − 1) / classes of them become wrong.

    >>> round(1 - uniform_transition(10, 0.8)[0, 0].item(), 4)
    0.72
    """
    check_rate(classes, rate)
    identity = torch.eye(classes, dtype=torch.float64)
    return (1 - rate) * identity + rate / classes


def symmetric_transition(classes: int, rate: float) -> Tensor:
    """Redraw a share of the labels from the OTHER classes: exactly this share becomes wrong.

    >>> symmetric_transition(3, 0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    check_rate(classes, rate)
    identity = torch.eye(classes, dtype=torch.float64)
    return (1 - rate) * identity + rate / (classes - 1) * (1 - identity)


def asymmetric_transition(classes: int, rate: float, class_map: ClassMap | None = None) -> Tensor:
    """Flip each class of the map to its target with probability rate; by default c -> (c + 1) % classes.

    >>> asymmetric_transition(3, 0.25, {0: 2}).tolist()
    [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_rate(classes, rate)
    if class_map is None:
        class_map = {label: (label + 1) % classes for label in range(classes)}
    transition = torch.eye(classes, dtype=torch.float64)
    for source, target in class_map.items():
        if not (0 <= source < classes and 0 <= target < classes and source != target):
            raise UserError(
                f"The class map flips {source} to {target}, which are not two of the {classes} classes: "
                f"map a number from 0 to {classes - 1} to another one."
            )
        transition[source, source] = 1 - rate
        transition[source, target] = rate
    return transition


def check_transition(transition: Tensor, classes: int) -> None:
    """Raise a UserError unless this is a square matrix of probabilities whose rows sum to 1."""
    if transition.shape != (classes, classes):
        raise UserError(
            f"The transition matrix has shape {tuple(transition.shape)}: "
            f"{classes} classes need {classes} rows (true) of {classes} numbers (given)."
        )
    if not transition.isfinite().all():
        raise UserError("The transition matrix has entries that are NaN or infinite: give every entry a probability.")
    if (transition < 0).any():
        raise UserError(
            f"The transition matrix has the negative entry {transition.min().item():g}: give every entry a probability."
        )
    sums = transition.double().sum(dim=1)
    worst = int((sums - 1).abs().argmax())
    if abs(sums[worst].item() - 1) > 1e-6:
        raise UserError(
            f"Row {worst} of the transition matrix sums to {sums[worst].item():g}: "
            "divide each row by its sum, so that it sums to 1."
        )


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

    >>> noisy = corrupt(torch.tensor([0, 1, 2]), asymmetric_transition(3, 1.0), torch.Generator())
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


def check_rate(classes: int, rate: float) -> None:
    """Raise a UserError unless there are classes to confuse and the rate is a share."""
    if classes < 2:
        raise UserError(f"Label noise needs at least 2 classes to confuse, and there are {classes}: add classes.")
    if not 0 <= rate <= 1:  # also refuses NaN
        raise UserError(f"The noise rate is {rate}: give a share from 0 to 1, such as 0.8 for 80%.")
