"""The trusted set: choose it, class-balanced."""

import torch
from torch import Tensor

from karat.errors import UserError


def rank_within_class(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Number the examples of each class 0, 1, 2, … in random order: ranks below n are n examples per class.

    >>> ranks = rank_within_class(torch.tensor([7, 3, 7, 7]), torch.Generator())
    >>> ranks[1].item(), sorted(ranks[[0, 2, 3]].tolist())
    (0, [0, 1, 2])
    """
    return _rank_in_order(labels, torch.randperm(len(labels), generator=generator))


def _rank_in_order(labels: Tensor, order: Tensor) -> Tensor:
    by_class = order[labels[order].argsort(stable=True)]
    _, counts = labels.unique(return_counts=True)
    ranks = torch.empty_like(by_class)
    ranks[by_class] = torch.cat([torch.arange(int(count)) for count in counts])
    return ranks


def trusted_split(labels: Tensor, per_class: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Choose so many trusted examples of each class; return the trusted and the noisy indices, both sorted.

    >>> trusted, noisy = trusted_split(torch.tensor([0, 1, 0, 1, 1]), 1, torch.Generator())
    >>> len(trusted), len(noisy)
    (2, 3)
    """
    if per_class < 0:
        raise UserError(f"There are to be {per_class} trusted examples per class: ask for 0, which is none, or more.")
    if per_class == 0:
        return torch.arange(0), torch.arange(len(labels))
    if not len(labels):
        raise UserError("There are no labels to choose trusted examples from: give at least 2 examples of each class.")
    values, counts = labels.unique(return_counts=True)
    rarest, count = int(values[counts.argmin()]), int(counts.min())
    if count <= per_class:
        remedy = f"ask for at most {count - 1} per class" if count > 1 else "add examples to the class or leave it out"
        raise UserError(
            f"Class {rarest} has {count} example{'s' * (count != 1)}, too few for {per_class} trusted "
            f"and at least 1 noisy: {remedy}."
        )
    is_trusted = rank_within_class(labels, generator) < per_class
    return is_trusted.nonzero().squeeze(1), (~is_trusted).nonzero().squeeze(1)


def limited_rows(labels: Tensor, trusted: Tensor | None, classes: int, limit: int, seed: int) -> Tensor:
    """Choose at most `limit` examples, class-balanced; return their indices, sorted.

    Trusted examples come first as long as they are at most half of the limit: there are few, and each counts.

    >>> limited_rows(torch.tensor([0, 0, 0, 1]), torch.tensor([False, True, False, False]), 2, limit=2, seed=0).tolist()
    [1, 3]
    """
    if limit < classes:
        raise UserError(
            f"A limit of {limit} train examples cannot hold all {classes} classes: allow at least {classes}."
        )
    ranks = rank_within_class(labels, torch.Generator().manual_seed(seed))
    if trusted is not None and 2 * int(trusted.sum()) <= limit:
        ranks = _rank_in_order(labels, torch.where(trusted, -1, ranks).argsort(stable=True))
    # The lowest ranks: as balanced as the classes allow, also where one is smaller than its share.
    return ranks.argsort(stable=True)[:limit].sort().values
