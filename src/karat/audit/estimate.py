"""How many of the given labels are wrong: an estimate, an interval around it, and what becomes what."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from karat.audit.beliefs import Beliefs, Calibration
from karat.audit.record import AuditRecord
from karat.files.json_files import write_json

LEVEL = 0.95
WIDE = 0.25
_Z = 1.959964


@dataclass(frozen=True)
class Changes:
    """What cleaned_labels.csv does: how many labels it changes, how many it leaves for review, and what it promises.

    `claimed_errors` is the share of the changed labels that are wrong by their own probabilities, at most the
    `error_rate` that was asked for. `promised`: these are probabilities of a method that judges labels it has not seen.
    """

    error_rate: float
    changed: int
    claimed_errors: float
    review: int
    promised: bool

    def __str__(self) -> str:
        claimed = f", {self.claimed_errors:.1%} of them wrong by its own probabilities" if self.changed else ""
        caution = "" if self.promised else "; no promise, since they come from predictions that learned these labels"
        more = ", and a higher audit.error_rate changes more" if self.review and not self.changed else ""
        return (
            f"{self.changed:,} labels changed{claimed} (at most {self.error_rate:.1%} asked for{caution}); "
            f"{self.review:,} label issues are left for review{more}"
        )


@dataclass(frozen=True)
class NoiseEstimate:
    """The share of wrong labels among the noisy examples, as noise_estimate.json has it.

    `transition[true, given]` has rows that sum to 1; `per_class` counts by given label; `calibrated_on` are the
    verified examples on which the errors of the predictions were measured.
    """

    rate: float
    low: float
    high: float
    level: float
    examples: int
    transition: list[list[float]]
    classes: list[str]
    per_class: list[dict[str, Any]]
    calibrated_on: dict[str, Any]
    note: str
    warnings: tuple[str, ...] = ()
    changes: Changes | None = None


def estimate_noise(record: AuditRecord, calibration: Calibration, believed: Beliefs) -> NoiseEstimate:
    """Return the mean probability of a wrong label, with the interval of `quantiles` or `bounds`.

    The first is for methods that weigh hypotheses about the noise by trusted labels, the other for those that do not.
    """
    given = record.noisy.labels
    if not len(given):
        raise ValueError("an estimate needs noisy examples")
    rate = (1 - believed.quality.double()).mean().item()
    disagreement = (believed.predicted != given).double().mean().item()
    verified, notes = _verified(record)
    spread = _Z * math.sqrt(rate * (1 - rate) / len(given))
    weighed = record.rates is not None and len(record.rates) > 0 and len(record.trusted) > 0
    if record.rates is not None and weighed:
        low, high = quantiles(record.rates, len(given))
        notes = ["The interval is that of the hypotheses about the noise that the trusted labels leave open."]
    else:
        low, high = bounds(disagreement, len(given), verified["accuracy"], verified["count"])
    if verified["memorised"] and not weighed:
        # Measured on wine and digits: the error of a network that knows all given labels is 0.6 to 1 times their noise.
        high = max(high, 2 * (1 - wilson(verified["accuracy"], verified["count"])[0]))
        notes.append(
            "The network agrees with the given labels more often than with verified ones, so it may have learned wrong "
            "ones by heart: the rate is a lower bound, and the interval was widened upwards."
        )
    low, high = max(0.0, min(low, rate - spread)), min(1.0, max(high, rate + spread))
    if high - low > WIDE:
        notes.append(
            "Too little is known for a narrow interval: verify more examples, or a random sample (`karat sample`)."
        )
    return NoiseEstimate(
        rate=rate,
        low=low,
        high=high,
        level=LEVEL,
        examples=len(given),
        transition=calibration.transition.tolist(),
        classes=list(record.classes),
        per_class=_per_class(record, believed),
        calibrated_on={"count": verified["count"], "accuracy": verified["accuracy"], "set": verified["set"]}
        if verified["set"] != "none"
        else {"count": 0, "accuracy": None, "set": "none"},
        note=" ".join(notes),
    )


def quantiles(rates: Tensor, examples: int) -> tuple[float, float]:
    """Return the 2.5% and 97.5% quantiles of the noise rate by all hypotheses [hypothesis, (rate, error, weight)].

    Each is a normal distribution around its rate; its variance is the square of its error and that of chance.

    >>> two = torch.tensor([[0.10, 0.01, 0.5], [0.30, 0.01, 0.5]])
    >>> [round(end, 2) for end in quantiles(two, examples=10_000)]
    [0.08, 0.32]
    """
    rate, error, weight = rates.double().unbind(dim=1)
    deviation = (error.square() + rate * (1 - rate) / examples).sqrt().clamp(min=1e-6)
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    below = torch.special.ndtr((grid[:, None] - rate) / deviation) @ (weight / weight.sum())
    low, high = (grid[int((below < share).sum().clamp(max=2000))].item() for share in (0.025, 0.975))
    return low, high


def bounds(disagreement: float, examples: int, accuracy: float, verified: int) -> tuple[float, float]:
    """Return the least and the greatest share r of wrong labels that predictions with these errors allow.

    A prediction differs from the given label with probability `d = r·(1−a) + (1−r)·e`: e is the error of the
    predictions, a how often they repeat a wrong label. d has its sampling error, e is at most the upper end of its
    Wilson interval on the verified examples. Least r: a = 0 and e at its most. Greatest: e = 0, and the predictions of
    wrongly labelled examples err as often as that, always towards the wrong label.

    >>> low, high = bounds(disagreement=0.40, examples=10_000, accuracy=0.95, verified=1_000)
    >>> round(low, 2), round(high, 2)
    (0.35, 0.44)
    """
    d_low, d_high = wilson(disagreement, examples)
    error = 1 - wilson(accuracy, verified)[0]
    if error >= 1:
        return 0.0, 1.0
    return max((d_low - error) / (1 - error), 0.0), min(d_high / (1 - error), 1.0)


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share.

    >>> [round(end, 3) for end in wilson(1.0, 100)]
    [0.963, 1.0]
    """
    if not count:
        return 0.0, 1.0
    centre = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z / (1 + _Z**2 / count) * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def save_estimate(estimate: NoiseEstimate, path: Path) -> None:
    """Write noise_estimate.json."""
    write_json(path, asdict(estimate))


def _verified(record: AuditRecord) -> tuple[dict[str, Any], list[str]]:
    """Return how often predictions of verified examples are right, on test examples where there are some."""
    test = len(record.verified_labels) > 0
    labels = record.verified_labels if test else record.trusted.labels
    probabilities = record.verified_probabilities if test else record.trusted_ledger.probabilities.float()
    accuracy = _share(probabilities.argmax(dim=1) == labels)
    agreement = _share(record.ledger.probabilities.argmax(dim=1) == record.noisy.labels)
    found = {
        "set": "test" if test else "trusted",
        "count": len(labels),
        "accuracy": accuracy,
        "memorised": agreement > wilson(accuracy, len(labels))[1],
    }
    if not len(labels):
        # As often as they differ from a given label, the predictions may be wrong, and no more often.
        unknown = {**found, "set": "none", "accuracy": agreement, "count": len(record.noisy), "memorised": False}
        return unknown, [
            "No label is verified: the interval only says that the predictions err at most as often as they differ "
            "from the given labels."
        ]
    if test:
        return found, ["The errors of the predictions were measured on test examples."]
    return found, [
        "There is no test set: the errors of the predictions were measured on the trusted examples, from which the "
        "network may have learned. The interval is then too narrow where the network errs more often elsewhere."
    ]


def _per_class(record: AuditRecord, believed: Beliefs) -> list[dict[str, Any]]:
    given, wrong = record.noisy.labels, 1 - believed.quality.double()
    count = torch.bincount(given, minlength=len(record.classes))
    total = torch.zeros(len(record.classes), dtype=torch.float64).index_add_(0, given, wrong)
    return [
        {"class": name, "count": int(n), "wrong_share": float(share) / int(n) if n else None}
        for name, n, share in zip(record.classes, count, total, strict=True)
    ]


def _share(flags: Tensor) -> float:
    return flags.double().mean().item() if len(flags) else 0.0
