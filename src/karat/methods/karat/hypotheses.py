"""Hypotheses about the noise: what T may be like, what judges are worth under each, and how much each weighs.

A hypothesis is a family of matrices T (none, one rate, one rate with directions, full, or one of each example's own:
wrong labels are those of classes that look alike); a candidate is one of its members with a mixture of the judges, a
sharpness and a floor. `verdict.py` has the formulas, and averages over all candidates.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
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
    without_noise,
)

TINY = 1e-9
MOSTLY = 0.6  # of a class's labels: 40% that become one other are found as up to half
HAVE_DIRECTIONS = ("directed", "full")  # families of T that fit labels better by chance
NOBODY = 1.0  # the floor with which no judge is heard, and p is the shares of the classes


class Alike(NamedTuple):
    """Wrong labels are those of classes that look alike: a share of the labels is redrawn from `s_i ∝ p_i^likeness`."""

    redrawn: float
    likeness: float

    def reached(self, p: Tensor, given: Tensor) -> Tensor:
        """Return `(1 − r)·[c = given_i] + r·s_i(given_i)` [example, class].

        >>> Alike(0.5, 1.0).reached(torch.tensor([[0.8, 0.2]]), torch.tensor([1]))
        tensor([[0.1000, 0.6000]])
        """
        given = given[:, None]
        drawn = (self.redrawn * self._drawn(p)).gather(1, given)
        return drawn.repeat(1, p.shape[1]).scatter_add_(1, given, torch.full_like(drawn, 1 - self.redrawn))

    def matrices(self, p: Tensor) -> Tensor:
        """Return T of each example [example, true, given]."""
        return (1 - self.redrawn) * torch.eye(p.shape[1]).to(p) + self.redrawn * self._drawn(p)[:, None]

    def mean(self, p: Tensor) -> Tensor:
        """Return T[true, given] in the mean over the examples of each class."""
        of_class = p / p.sum(dim=0).clamp(min=TINY)
        return (1 - self.redrawn) * torch.eye(p.shape[1]).to(p) + self.redrawn * (of_class.T @ self._drawn(p))

    def fitted(self, p: Tensor, given: Tensor, rounds: int = 20) -> "Alike":
        """Return it with the share of redrawn labels that makes the given ones likeliest, by so many rounds of EM."""
        right, drawn = (part.gather(1, given[:, None]) for part in (p, self._drawn(p)))
        redrawn = self.redrawn
        for _ in range(rounds):
            redrawn = float((redrawn * drawn / ((1 - redrawn) * right + redrawn * drawn).clamp(min=TINY)).mean())
        return self._replace(redrawn=redrawn)

    def _drawn(self, p: Tensor) -> Tensor:
        powers = p.clamp(min=TINY) ** self.likeness
        return powers / powers.sum(dim=1, keepdim=True)


class Candidate(NamedTuple):
    """A hypothesis with its numbers, and how much it weighs (a logarithm)."""

    mixture: Tensor
    sharpness: float
    floor: float
    shares: Tensor
    transition: Tensor
    """T[true, given], in the mean over the examples where each has its own"""
    weight: float
    alike: Alike | None = None
    """how wrong labels come to be, where T is each example's own"""
    of_given: "Candidate | None" = None
    """by which mixture, sharpness and floor judges predict given labels, where T is taken off from these"""

    def predictions(self, logits: Tensor) -> Tensor:
        """Return p of what the judges said [judge, example, class]."""
        mixture = self.mixture
        if self.of_given is not None:
            logits = without_noise(self.of_given.predictions(logits), self.transition, self.shares).log()[None]
            mixture = torch.ones(1)
        return predictions(logits, mixture, self.sharpness, self.floor, self.shares)

    def reached(self, p: Tensor, given: Tensor) -> Tensor:
        """Return how likely an example of each class would have got the given label [example, class]."""
        return self.transition.T[given].to(p) if self.alike is None else self.alike.reached(p, given)

    def matrices(self, p: Tensor) -> Tensor:
        """Return T of each example [example, true, given], or one for all."""
        return self.transition.to(p)[None] if self.alike is None else self.alike.matrices(p)


class Labelling(NamedTuple):
    """How classes get their labels: T[true, given] in the mean, and how likely each class is to get a row's label."""

    transition: Tensor
    reached: Tensor


def weighed_candidates(
    family: str,
    said: Judged,
    labels: Labels,
    transition: Tensor,
    shares: Tensor,
    sample: Tensor,
    is_unseen: Tensor,
    constants: VerdictConstants,
    predictable: float = -math.inf,
) -> list[Candidate]:
    """Weigh every mixture, sharpness and floor under this hypothesis.

    `predictable` is how likely judges of the given labels make them (a mean of logarithms). Noise that follows the
    looks of the examples can make them as likely whatever p is: only trusted labels tell against it.
    """
    given, noisy_logits = labels.given[sample], said.noisy[:, sample]
    count, mixtures = noisy_count(labels, constants), mixtures_of(len(said.noisy))
    has_unseen = bool(is_unseen.any())  # the only ones of their classes say which is which
    heard = [*itertools.product(mixtures, constants.sharpness, constants.floors)]
    found = []
    for mixture, sharpness, floor in (*heard, (mixtures[-1], 1.0, NOBODY)):
        p = predictions(noisy_logits, mixture, sharpness, floor, shares)
        of_trusted = predictions(said.trusted, mixture, sharpness, floor, shares)
        # Judges are as likely to know nothing as to know something.
        prior = (
            math.log(len(heard)) if floor == NOBODY else -((math.log(sharpness) / constants.sharpness_width) ** 2) / 2
        )
        for matrix, alike in _fitted(family, p, given, transition, bool(len(labels.trusted)), constants):
            candidate = Candidate(mixture, sharpness, floor, shares, matrix, prior, alike)
            joint = p * candidate.reached(p, given)
            likelihood = joint.sum(dim=1, keepdim=True).clamp(min=torch.finfo(joint.dtype).tiny)
            believed = (joint / likelihood).mean(dim=0).clamp(min=0.02 / labels.classes)
            noisy = float(likelihood.log().mean())
            if family in HAVE_DIRECTIONS:
                noisy = (noisy + _unseen_likelihood(family, p, given, transition)) / 2
            elif family == "alike":
                noisy = max(noisy, predictable)
            right = _trusted_likelihood(of_trusted * (labels.trusted_shares / believed), labels.trusted)
            against = _against(family, matrix, believed, labels, has_unseen, constants)
            found.append(candidate._replace(weight=prior + right + count * noisy - against))
    return found


def _trusted_likelihood(p: Tensor, trusted: Tensor) -> float:
    """Return the log-likelihood of the trusted labels; rows of p need not sum to 1."""
    return float((p / p.sum(dim=1, keepdim=True)).gather(1, trusted[:, None]).clamp(min=TINY).log().sum())


def _against(
    family: str, matrix: Tensor, believed: Tensor, labels: Labels, has_unseen: bool, constants: VerdictConstants
) -> float:
    """Return what a hypothesis has against it before any label is seen, in nats."""
    if family == "alike":
        return constants.alike_prior + math.log(len(constants.likenesses))
    if family not in HAVE_DIRECTIONS:
        return 0.0
    if not len(labels.trusted):  # no label can tell the hypotheses apart: none is ruled out
        return 1.0 - constants.blur_prior * blur(matrix, believed)
    against = -constants.blur_prior * blur(matrix, believed)
    if family == "directed":
        return constants.directed_prior + against
    swapped = constants.swap_prior * (has_unseen and _is_swapped(matrix))
    return constants.full_prior * (labels.classes + 2) + swapped + against


def _fitted(
    family: str, p: Tensor, given: Tensor, start: Tensor, has_trusted: bool, constants: VerdictConstants
) -> Iterator[tuple[Tensor, Alike | None]]:
    """Yield T that is fitted to the given labels under a hypothesis; for classes that look alike one for each power."""
    if family == "alike":
        for likeness in constants.likenesses:
            alike = Alike(0.5, likeness).fitted(p, given)
            yield alike.mean(p), alike
        return
    matrix = start
    for _ in range(4):
        believed = true_posterior(p, given, matrix).mean(dim=0)
        matrix = _SHAPES[family](fit_transition(p, given, matrix, lambda counts: 0.1), believed)
        if not has_trusted:
            matrix = diagonally_dominant(matrix)
    yield matrix, None


def _unseen_likelihood(family: str, p: Tensor, given: Tensor, start: Tensor) -> float:
    """Return how likely labels are under a T that was fitted to the other half of them (a mean of logarithms).

    What T gains by chance on labels that it was fitted to, it loses on others: the mean of both is fair.
    """
    halves = [(p[place::2], given[place::2]) for place in (0, 1)]
    fitted = []
    for half in halves:
        matrix = fit_transition(*half, start, lambda counts: 0.1, rounds=4)
        fitted.append(_SHAPES[family](matrix, true_posterior(*half, matrix).mean(dim=0)))
    unseen = [label_likelihood(*half, matrix).log() for half, matrix in zip(halves, reversed(fitted), strict=True)]
    return float(torch.cat(unseen).mean())


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


def mean_noise(logits: Tensor, found: Sequence[Candidate], given: Tensor) -> Labelling:
    """Return what the labels come from in the mean of the candidates."""
    reached = torch.zeros(())
    for weight, one in zip(shares_of(found), found, strict=True):
        if weight > 1e-3:
            reached = reached + weight * one.reached(one.predictions(logits), given)
    return Labelling(mean_matrix(found), reached)


def believed_shares(logits: Tensor, found: Sequence[Candidate], given: Tensor) -> Tensor:
    """Return the shares of the true classes by all candidates together."""
    q = true_posterior(weighed_predictions([(logits, one) for one in found]), given, mean_matrix(found))
    return q.mean(dim=0).clamp(min=0.02 / q.shape[1])


def posterior_of(p: Tensor, reached: Tensor) -> Tensor:
    """Return `q(c) ∝ p(c)·reached(c)`."""
    joint = p * reached
    return joint / joint.sum(dim=1, keepdim=True).clamp(min=torch.finfo(joint.dtype).tiny)


def mixtures_of(judges: int) -> list[Tensor]:
    """Return each judge alone, and all groups of them with equal shares.

    >>> [mixture.tolist() for mixture in mixtures_of(2)]
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    """
    groups = [group for size in range(1, judges + 1) for group in itertools.combinations(range(judges), size)]
    return [torch.eye(judges)[list(group)].mean(dim=0) for group in groups]


def blur(transition: Tensor, shares: Tensor) -> float:
    """Return how much less the labels say of the classes than with one rate: `min(0, log|det T| − log|det one|)`.

    Judges that cannot tell two classes apart fit a matrix that gives both the same labels.

    >>> round(blur(torch.tensor([[0.51, 0.49], [0.49, 0.51]]), torch.tensor([0.5, 0.5])), 3)
    0.0
    >>> round(blur(torch.tensor([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]]), torch.ones(3) / 3), 2)
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


def is_even(transition: Tensor, shares: Tensor, within: float) -> bool:
    """Return whether T is one rate, with numbers that differ by this at most.

    >>> is_even(torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.ones(2) / 2, 0.01)
    True
    >>> is_even(torch.tensor([[1.0, 0.0], [0.2, 0.8]]), torch.ones(2) / 2, 0.01)
    False
    """
    return torch.allclose(transition, one_rate(transition, shares).to(transition), rtol=0, atol=within)


def _directed(transition: Tensor, shares: Tensor) -> Tensor:
    """Return the matrix with one rate whose wrong labels become what they become in this one.

    >>> _directed(torch.tensor([[0.8, 0.2, 0.0], [0.3, 0.4, 0.3], [0.4, 0.0, 0.6]]), torch.ones(3) / 3)
    tensor([[0.6000, 0.4000, 0.0000],
            [0.2000, 0.6000, 0.2000],
            [0.4000, 0.0000, 0.6000]])
    """
    even = one_rate(transition, shares)
    wrong = transition - transition.diagonal().diag()
    wrong = wrong / wrong.sum(dim=1, keepdim=True).clamp(min=TINY)
    return even.diagonal().diag() + (1 - even.diagonal())[:, None] * wrong


def _full(transition: Tensor, shares: Tensor) -> Tensor:
    return transition


MATRICES = {"none": _none, "one": one_rate, "full": _full}
"""What judges are fitted under."""

FAMILIES = {**{family: family for family in MATRICES}, "directed": "one", "alike": "one"}
"""All hypotheses, and under which of the matrices judges were fitted that speak for each (DECISIONS.md)."""

_SHAPES = {**MATRICES, "directed": _directed}
