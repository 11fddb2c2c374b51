"""Whether probabilities keep their word, where the truth is known: label quality against how often labels are right."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from karat.audit.record import AuditRecord
from karat.errors import DamagedFile
from karat.files.json_files import write_json
from karat.files.safe_csv import read_safe_csv

BINS = 10
_LOWEST = 1e-6  # a label that was called impossible, and is right, costs 14 nats


@dataclass(frozen=True)
class Bin:
    """Labels of a quality from `low` to `high`: how many, the mean quality that they claim, the share of right ones."""

    low: float
    high: float
    count: int
    claimed: float
    right: float


@dataclass(frozen=True)
class Reliability:
    """How well qualities fit the truth; 0 is perfect.

    `brier`: mean of (q − right)². `log_score`: mean of −log of the probability of what is true. `calibration_error`:
    mean of |claimed − right| over ten bins, weighed by their counts (the expected calibration error). `changed_errors`
    is the share of wrong ones among the changed labels, None where none was changed.
    """

    count: int
    brier: float
    log_score: float
    calibration_error: float
    bins: tuple[Bin, ...]
    changed_errors: float | None = None

    def __str__(self) -> str:
        changed = "" if self.changed_errors is None else f"; {self.changed_errors:.1%} of the changed labels are wrong"
        return (
            f"expected calibration error {self.calibration_error:.3f}, Brier score {self.brier:.3f}, log score "
            f"{self.log_score:.3f}{changed}"
        )


def reliability(quality: Tensor, right: Tensor, changed_right: Tensor | None = None) -> Reliability:
    """Compare the claimed qualities of some labels with whether they are right.

    >>> found = reliability(torch.tensor([0.9, 0.9, 0.9, 0.9, 0.2]), torch.tensor([True, True, True, False, False]))
    >>> round(found.brier, 4), round(found.calibration_error, 4)  # (3·0.01 + 0.81 + 0.04)/5, (4·0.15 + 0.2)/5
    (0.176, 0.16)
    >>> [(one.count, round(one.claimed, 2), one.right) for one in found.bins]
    [(1, 0.2, 0.0), (4, 0.9, 0.75)]
    """
    quality, right = quality.double(), right.double()
    number = (quality * BINS - 1e-6).ceil().long().clamp(1, BINS) - 1  # 32 bits of 0.9 are a little less or more
    bins = []
    for place in number.unique().tolist():
        chosen = number == place
        claimed, share = quality[chosen].mean().item(), right[chosen].mean().item()
        bins.append(Bin(place / BINS, (place + 1) / BINS, int(chosen.sum()), claimed, share))
    likelihood = torch.where(right > 0, quality, 1 - quality).clamp(min=_LOWEST)
    return Reliability(
        count=len(quality),
        brier=(quality - right).square().mean().item(),
        log_score=-likelihood.log().mean().item(),
        calibration_error=sum(one.count * abs(one.claimed - one.right) for one in bins) / len(quality),
        bins=tuple(bins),
        changed_errors=None
        if changed_right is None or not len(changed_right)
        else 1 - changed_right.double().mean().item(),
    )


def true_labels(path: Path, record: AuditRecord) -> Tensor | None:
    """Read the true labels of the noisy examples from the noisy_labels.csv of a run; None where nobody knows them.

    What is none of the classes is -1.
    """
    table = read_safe_csv(path) if path.exists() else None
    if table is None or "true_label" not in table:
        return None
    try:
        known = dict(zip(table["index"].tolist(), map(int, table["true_label"].tolist()), strict=True))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"{path} is damaged ({error}): restore it, or delete it.") from error
    index = record.noisy.index.tolist()
    return torch.tensor([known[row] for row in index]) if known.keys() >= set(index) else None


def save_reliability(found: Reliability, path: Path) -> None:
    """Write reliability.json."""
    write_json(path, asdict(found))
