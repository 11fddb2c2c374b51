"""How likely each class is to be the true one: the network's predictions, made honest, and the given label, weighed.

With p the remembered predictions of an example and `transition[true, given]` the noise,

    P(true = c | example, given = y) ∝ p(c)^s · transition[c, y]

The sharpness s makes the confidence of the predictions fit the labels that are known to be right; the transition is the
one under which the given labels are most likely (expectation maximisation). Nothing asks for a noise rate below 50%.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from karat.noise_matrix import fit_transition, label_likelihood, symmetric_transition, true_posterior

SHARPNESS = torch.logspace(1.1, -0.3, 15, dtype=torch.float64)  # from 12.6, where the fit is easy, to 0.5
FIT_ENTRIES = 1_000_000  # examples · classes that the fit looks at: more make it slower, not better
FIT_EXAMPLES = 20_000
MOST_RIGHT = 0.98  # no label is beyond doubt: what a network knows by heart would all be ranked alike
_CHUNK_ENTRIES = 4_000_000
_LOWEST = 1e-6  # a probability: float16 has nothing below, and one wild example must not decide


@dataclass(frozen=True, eq=False)
class Calibration:
    """What makes predictions honest: their sharpness s, and the noise `transition[true, given]`."""

    sharpness: float
    transition: Tensor

    def posterior(self, probabilities: Tensor, given: Tensor) -> Tensor:
        """Return how likely each class is to be the true one, from prediction and given label."""
        return true_posterior(_to_the_power(probabilities.double(), self.sharpness), given, self.transition)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What to believe about each example.

    `quality`: how likely the given label is right. `other`: the likeliest other class, `confidence`: how likely that
    one is, by one standard error on the safe side where the method knows its own. `predicted`: the class that the
    network predicts, without a look at the given label.
    """

    quality: Tensor
    other: Tensor
    confidence: Tensor
    predicted: Tensor


def calibrate(probabilities: Tensor, given: Tensor, trusted: Tensor, trusted_labels: Tensor) -> Calibration:
    """Choose the sharpness by the likelihood of trusted and given labels, each with half a say, and the noise with it.

    The trusted labels alone would call a network right that only learned them by heart.

    >>> p = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).repeat(50, 1)
    >>> given = torch.tensor([0, 1] * 40 + [1, 0] * 10)  # 20% are wrong
    >>> found = calibrate(p, given, p[:20], torch.tensor([0, 1] * 10))
    >>> round(1 - found.transition.diagonal().mean().item(), 2)
    0.2
    """
    most = min(FIT_EXAMPLES, max(1, FIT_ENTRIES // probabilities.shape[1]))
    step = max(1, -(-len(given) // most))  # every so many examples
    p, y = probabilities[::step].float(), given[::step]
    transition = symmetric_transition(p.shape[1], 0.5)
    best = -math.inf, 1.0, transition
    for sharpness in SHARPNESS.tolist():
        sharp = _to_the_power(p, sharpness)
        transition = fit_transition(sharp, y, transition, pull, rounds=8)
        fit = label_likelihood(sharp, y, transition).log().mean().item()
        if len(trusted_labels):
            right = _to_the_power(trusted.float(), sharpness).gather(1, trusted_labels[:, None])
            fit += right.clamp(min=_LOWEST).log().mean().item()
        best = max(best, (fit, sharpness, transition), key=lambda one: one[0])
    _, sharpness, transition = best
    return Calibration(sharpness, fit_transition(_to_the_power(p, sharpness), y, transition, pull, rounds=30))


def pull(counts: Tensor) -> Tensor:
    """Pull each row, with the weight of one example, to the mean share of right labels, the wrong ones spread evenly.

    So a class with few examples has a row, too.

    >>> pull(torch.tensor([[3.0, 1.0], [0.0, 0.0]])).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    right = min((counts.trace() / counts.sum()).item(), MOST_RIGHT)
    return torch.full_like(counts, (1 - right) / (len(counts) - 1)).fill_diagonal_(right)


def beliefs(
    calibration: Calibration,
    probabilities: Tensor,
    given: Tensor,
    posterior: Tensor | None = None,
    caution: float = 1.0,
) -> Beliefs:
    """Return what to believe, read piece by piece: the predictions may be mapped to a file.

    Where a method has a `posterior` of its own, that is believed, and suggestions are as sure as its power `caution`.
    """
    if posterior is not None:
        parts = [_beliefs(q.double(), p, y, caution) for q, p, y in _chunks(posterior, probabilities, given)]
    else:
        parts = [_beliefs(calibration.posterior(p, y), p, y) for p, y in _chunks(probabilities, given)]
    columns = zip(*parts, strict=True) if parts else ([torch.zeros(0)], [given], [torch.zeros(0)], [given])
    return Beliefs(*(torch.cat(list(column)) for column in columns))


def _beliefs(
    believed: Tensor, probabilities: Tensor, given: Tensor, caution: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    quality = believed.gather(1, given[:, None]).squeeze(1)
    cautious = believed if caution == 1 else _to_the_power(believed, caution)
    confidence, other = cautious.scatter(1, given[:, None], -1.0).max(dim=1)
    return quality, other, confidence, probabilities.argmax(dim=1)


def _to_the_power(probabilities: Tensor, sharpness: float) -> Tensor:
    """Return p^s, scaled to sum 1: by its logarithm, because the least of 12.6 is below all numbers of 32 bits.

    >>> _to_the_power(torch.tensor([[0.75, 0.25]]), 2.0)
    tensor([[0.9000, 0.1000]])
    """
    return (probabilities.clamp(min=_LOWEST).log() * sharpness).softmax(dim=1)


def _chunks(first: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    rows = max(1, _CHUNK_ENTRIES // max(1, first.shape[1]))
    yield from zip(*(columns.split(rows) for columns in (first, *others)), strict=True)
