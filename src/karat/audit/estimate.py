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


def estimate_noise(record: AuditRecord, calibration: Calibration, believed: Beliefs) -> NoiseEstimate:
    """Return the mean probability of a wrong label, with the interval of `bounds`."""
    given = record.noisy.labels
    if not len(given):
        raise ValueError("an estimate needs noisy examples")
    rate = (1 - believed.quality.double()).mean().item()
    disagreement = (believed.predicted != given).double().mean().item()
    verified, notes = _verified(record)
    low, high = bounds(disagreement, len(given), verified["accuracy"], verified["count"])
    spread = _Z * math.sqrt(rate * (1 - rate) / len(given))
    if verified["memorised"]:
        # Measured on wine and digits: the error of a network that knows all given labels is 0.6 to 1 times their noise.
        high = max(high, 2 * (1 - wilson(verified["accuracy"], verified["count"])[0]))
        notes.append(
            "The network agrees with the given labels more often than with verified ones, so it may have learned wrong "
            "ones by heart: the rate is a lower bound, and the interval was widened upwards."
        )
    low, high = max(0.0, min(low, rate - spread)), min(1.0, max(high, rate + spread))
    if high - low > WIDE:
        notes.append("The predictions err too often for a narrow interval: train longer, or verify more examples.")
    return NoiseEstimate(
        rate=rate,
        low=low,
        high=high,
        level=LEVEL,
        examples=len(given),
        transition=calibration.transition.tolist(),
        classes=list(record.classes),
        per_class=_per_class(record, believed),
        calibrated_on={"count": verified["count"], "accuracy": verified["accuracy"], "set": verified["set"]},
        note=" ".join(notes),
    )


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
