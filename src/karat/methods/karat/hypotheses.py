"""Hypotheses about the noise: what T may be like, what judges are worth under each, and how much each weighs.

A hypothesis is a family of matrices T (none, one rate, full); a candidate is one of its members with a mixture of the
judges, a sharpness and a floor. `verdict.py` has the formulas, and averages over all candidates.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from karat.methods.karat.constants import VerdictConstants
from karat.methods.karat.folds import Labels
from karat.methods.karat.heads import Judged
from karat.noise_matrix import (
    diagonally_dominant,
    fit_transition,
    label_likelihood,
    symmetric_transition,
    true_posterior,
)

TINY = 1e-9
MOSTLY = 0.6  # of a class's labels: 40% that become one other are found as up to half
NOBODY = 1.0  # the floor with which no judge is heard, and p is the shares of the classes


class Candidate(NamedTuple):
    """A hypothesis with its numbers, and how much it weighs (a logarithm)."""

    mixture: Tensor
    sharpness: float
    floor: float
    shares: Tensor
    transition: Tensor
    weight: float

    def predictions(self, logits: Tensor) -> Tensor:
        """Return p of what the judges said [judge, example, class]."""
        return predictions(logits, self.mixture, self.sharpness, self.floor, self.shares)


def weighed_candidates(
    family: str,
    said: Judged,
    labels: Labels,
    transition: Tensor,
    shares: Tensor,
    sample: Tensor,
    is_unseen: Tensor,
    constants: VerdictConstants,
) -> list[Candidate]:
    """Weigh every mixture, sharpness and floor under this hypothesis."""
    given, classes, trusted = labels.given[sample], labels.classes, labels.trusted
    noisy_logits, count = said.noisy[:, sample], noisy_count(labels, constants)
    # Each number that T is free to choose makes labels likelier by chance, by half a nat. Where no trusted label can
    # tell the hypotheses apart, none is ruled out.
    spurious = constants.free_prior * (classes * (classes - 1) - 1)
    against_full = constants.full_prior * (classes + 2) + spurious if len(trusted) else 1.0
    found = []
    mixtures = mixtures_of(len(said.noisy))
    unseen_ones = bool(is_unseen.any())  # the only ones of their classes say which is which
    heard = [*itertools.product(mixtures, constants.sharpness, constants.floors)]
    for mixture, sharpness, floor in (*heard, (mixtures[-1], 1.0, NOBODY)):
        p = predictions(noisy_logits, mixture, sharpness, floor, shares)
        matrix = transition
        for _ in range(4):
            believed = true_posterior(p, given, matrix).mean(dim=0)
            matrix = FAMILIES[family](fit_transition(p, given, matrix, lambda counts: 0.1), believed)
            if not len(trusted):
                matrix = diagonally_dominant(matrix)
        believed = true_posterior(p, given, matrix).mean(dim=0).clamp(min=0.02 / classes)
        unseen = predictions(said.trusted, mixture, sharpness, floor, shares) * (labels.trusted_shares / believed)
        right = (unseen / unseen.sum(dim=1, keepdim=True)).gather(1, trusted[:, None]).clamp(min=TINY).log().sum()
        noisy = label_likelihood(p, given, matrix).log().mean()
        log_sharpness = torch.tensor(sharpness).log() / constants.sharpness_width
        weight = float(right + count * noisy - log_sharpness**2 / 2)
        if floor == NOBODY:
            weight += math.log(len(heard))  # judges are as likely to know nothing as to know something
        if family == "full":
            weight += constants.blur_prior * _blur(matrix, believed) - against_full
            weight -= constants.swap_prior * (unseen_ones and _is_swapped(matrix))
        found.append(Candidate(mixture, sharpness, floor, shares, matrix, weight))
    return found


def noisy_count(labels: Labels, constants: VerdictConstants) -> int:
    """Return as how many labels the noisy ones count together, against the trusted ones."""
    return min(len(labels.given), max(len(labels.trusted), constants.noisy_count))


def predictions(logits: Tensor, mixture: Tensor, sharpness: float, floor: float | Tensor, shares: Tensor) -> Tensor:
    """Return `(1 − f)·softmax(s·Σ_j m_j·z_j) + f·π` of the judges' logits [judge, example, class]."""
    mixed = (logits * mixture[:, None, None]).sum(dim=0)
    return (1 - floor) * (mixed * sharpness).softmax(dim=1) + floor * shares


def shares_of(found: Sequence[Candidate]) -> list[float]:
    """Return the candidates' shares of all weights together."""
    return torch.tensor([candidate.weight for candidate in found], dtype=torch.float64).softmax(dim=0).tolist()


def mean_matrix(found: Sequence[Candidate]) -> Tensor:
    """Return T in the mean of the candidates."""
    return torch.stack([w * one.transition for w, one in zip(shares_of(found), found, strict=True)]).sum(dim=0)


def weighed_predictions(pairs: Sequence[tuple[Tensor, Candidate]]) -> Tensor:
    """Return p in the mean of candidates, each by what judges said under it."""
    weights, mean = shares_of([candidate for _, candidate in pairs]), torch.zeros(())
    for weight, (logits, one) in zip(weights, pairs, strict=True):
        if weight > 1e-3:
            mean = mean + weight * one.predictions(logits)
    return mean


def believed_shares(logits: Tensor, found: Sequence[Candidate], given: Tensor) -> Tensor:
    """Return the shares of the true classes by all candidates together."""
    q = true_posterior(weighed_predictions([(logits, one) for one in found]), given, mean_matrix(found))
    return q.mean(dim=0).clamp(min=0.02 / q.shape[1])


def mixtures_of(judges: int) -> list[Tensor]:
    """Return each judge alone, and all groups of them with equal shares.

    >>> [mixture.tolist() for mixture in mixtures_of(2)]
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    """
    groups = [group for size in range(1, judges + 1) for group in itertools.combinations(range(judges), size)]
    return [torch.eye(judges)[list(group)].mean(dim=0) for group in groups]


def _blur(transition: Tensor, shares: Tensor) -> float:
    """Return how much less the labels say of the classes than with one rate: `min(0, log|det T| − log|det one|)`.

    Judges that cannot tell two classes apart fit a matrix that gives both the same labels.

    >>> round(_blur(torch.tensor([[0.51, 0.49], [0.49, 0.51]]), torch.tensor([0.5, 0.5])), 3)
    0.0
    >>> round(_blur(torch.tensor([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]]), torch.ones(3) / 3), 2)
    -1.11
    """
    pair = torch.stack([transition, one_rate(transition, shares)]).double()
    full, even = torch.linalg.slogdet(pair).logabsdet.clamp(min=-1e3)
    return min(0.0, float(full - even))


def _is_swapped(transition: Tensor) -> bool:
    """Return whether clearly more than half of a class is labelled as some one other.

    >>> _is_swapped(torch.tensor([[0.3, 0.7], [0.1, 0.9]]))
    True
    """
    return bool((transition - 2 * transition.diagonal().diag() > MOSTLY).any())


def _none(transition: Tensor, shares: Tensor) -> Tensor:
    return torch.eye(len(transition))


def one_rate(transition: Tensor, shares: Tensor) -> Tensor:
    """Return the matrix with the share of right labels that this one has over all classes, wrong ones spread evenly.

    No label is likelier to be wrong in some one way than to be right.

    >>> one_rate(torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0.5, 0.5]))
    tensor([[0.8000, 0.2000],
            [0.2000, 0.8000]])
    """
    right = (transition.diagonal() * shares).sum() / shares.sum()
    return symmetric_transition(len(transition), min(max(1 - right.item(), 0.0), 1 - 1 / len(transition))).to(
        transition
    )


def _full(transition: Tensor, shares: Tensor) -> Tensor:
    return transition


FAMILIES = {"none": _none, "one": one_rate, "full": _full}
