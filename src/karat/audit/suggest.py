"""Which rows to verify next, so that the trusted set grows where it helps most."""

import math

import numpy as np
import pandas as pd
import torch

from karat.audit.beliefs import Beliefs
from karat.audit.record import AuditRecord
from karat.errors import UserError

PAIR_SHARE = 0.2  # of the suggestions may be of one pair of given and likely class, while there are others


def suggestions(record: AuditRecord, believed: Beliefs, count: int = 50) -> pd.DataFrame:
    """Return the rows whose verification would help most, the best first, each with its reason.

    A row scores `doubt · (1 + need) / 2`: doubt is the probability that neither keeping nor changing its label would be
    right, relative to the largest, and need is how few trusted examples its likely class has.
    """
    if count < 1:
        raise UserError(f"--count is {count}: ask for at least 1 row.")
    given = record.noisy.labels
    keep = believed.quality >= believed.confidence
    likely = torch.where(keep, given, believed.other)
    certainty = torch.where(keep, believed.quality, believed.confidence)
    doubt = 1 - certainty
    trusted = torch.bincount(record.trusted.labels, minlength=len(record.classes))
    need = trusted.min().clamp(min=1) / trusted.clamp(min=1)
    score = doubt / doubt.max().clamp(min=1e-12) * (1 + need[likely]) / 2
    chosen = _diverse(score, given * len(record.classes) + torch.where(keep, believed.other, likely), count)
    rows = chosen.numpy()
    names = np.array(record.classes, dtype=object)
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(rows) + 1),
            "id": [record.noisy.names[row] for row in rows],
            "index": record.noisy.index.numpy()[rows],
            "given_label": names[given.numpy()[rows]],
            "likely_label": names[likely.numpy()[rows]],
            "confidence": np.round(certainty.double().numpy()[rows], 6),
            "reason": [_reason(record, believed, row, int(likely[row]), trusted) for row in rows.tolist()],
        }
    )


def _diverse(score: torch.Tensor, pair: torch.Tensor, count: int) -> torch.Tensor:
    """Return the best rows, at most a share of one pair; where that leaves places free, the best of the rest."""
    order = score.argsort(descending=True, stable=True)
    limit = max(1, math.ceil(PAIR_SHARE * count))
    taken: dict[int, int] = {}
    first: list[int] = []
    rest: list[int] = []
    for row, kind in zip(order.tolist(), pair[order].tolist(), strict=True):
        if len(first) == count:
            break
        if taken.get(kind, 0) < limit:
            taken[kind] = taken.get(kind, 0) + 1
            first.append(row)
        elif len(rest) < count:
            rest.append(row)
    return torch.tensor((first + rest)[:count], dtype=torch.int64)


def _reason(record: AuditRecord, believed: Beliefs, row: int, likely: int, trusted: torch.Tensor) -> str:
    given, other = int(record.noisy.labels[row]), int(believed.other[row])
    reason = (
        f"given {record.classes[given]} is right with {believed.quality[row]:.0%}, "
        f"{record.classes[other]} with {believed.confidence[row]:.0%}"
    )
    count = int(trusted[likely])
    if count < trusted.double().mean():
        reason += f"; only {count} trusted of {record.classes[likely]}"
    return reason
