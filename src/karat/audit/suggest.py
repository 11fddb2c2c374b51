"""Which rows to verify next, so that the trusted set grows where it helps most; at first, those typical of a class."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from karat.audit.beliefs import Beliefs
from karat.audit.record import AuditRecord
from karat.errors import UserError

PAIR_SHARE = 0.2  # of the suggestions may be of one pair of given and likely class, while there are others
TYPICAL_SHARE = 2 / 3  # of the first rows to verify


class Looks(NamedTuple):
    """What some of the noisy examples look like: their places among these, and features that no label had a part in."""

    rows: Tensor
    features: Tensor


def suggestions(record: AuditRecord, believed: Beliefs, count: int = 50, looks: Looks | None = None) -> pd.DataFrame:
    """Return the rows whose verification would help most, the best first, each with its reason.

    A row scores `doubt · (1 + need) / 2`: doubt is the probability that neither keeping nor changing its label would be
    right, relative to the largest, and need is how few trusted examples its likely class has. Where nothing is verified
    yet, `looks` say which rows are typical of their likely class: these come first.
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
    first: list[int] = []
    if looks is not None:
        most = math.ceil(TYPICAL_SHARE * count)
        sure = (likely == believed.predicted)[looks.rows]  # with and without its label it is the same class
        rows, features = looks.rows[sure], looks.features[sure]
        first = rows[_typical(features, likely[rows], most)].tolist()
    pair = given * len(record.classes) + torch.where(keep, believed.other, likely)
    doubtful = [row for row in _diverse(score, pair, count + len(first)) if row not in first]
    chosen = np.array((first + doubtful)[:count], dtype=np.int64)
    names = np.array(record.classes, dtype=object)
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(chosen) + 1),
            "id": [record.noisy.names[row] for row in chosen],
            "index": record.noisy.index.numpy()[chosen],
            "given_label": names[given.numpy()[chosen]],
            "likely_label": names[likely.numpy()[chosen]],
            "confidence": np.round(certainty.double().numpy()[chosen], 6),
            "reason": [
                f"typical of {record.classes[likely[row]]}" * (place < len(first))
                or _reason(record, believed, row, int(likely[row]), trusted)
                for place, row in enumerate(chosen.tolist())
            ],
        }
    )


def _typical(features: Tensor, likely: Tensor, count: int) -> list[int]:
    """Return rows in the middle of clusters, as many clusters of each class as places allow, in turns of the classes.

    >>> _typical(torch.tensor([[0.0], [1.0], [2.0], [9.0]]), torch.tensor([0, 0, 0, 1]), 2)
    [1, 3]
    """
    classes = likely.unique().tolist()
    each = math.ceil(count / max(len(classes), 1))
    turns: list[Sequence[int]] = []
    for label in classes:
        rows = (likely == label).nonzero().squeeze(1).numpy()
        found = KMeans(min(each, len(rows)), n_init=1, random_state=0).fit(features[rows].double().numpy())
        middle = found.transform(features[rows].double().numpy()).argmin(axis=0)
        sizes = np.bincount(found.labels_, minlength=len(middle))
        turns.append(list(dict.fromkeys(rows[middle[np.argsort(-sizes, kind="stable")]].tolist())))
    in_turns = [row for turn in itertools.zip_longest(*turns) for row in turn if row is not None]
    return in_turns[:count]


def _diverse(score: Tensor, pair: Tensor, count: int) -> list[int]:
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
    return (first + rest)[:count]


def _reason(record: AuditRecord, believed: Beliefs, row: int, likely: int, trusted: Tensor) -> str:
    given, other = int(record.noisy.labels[row]), int(believed.other[row])
    reason = (
        f"given {record.classes[given]} is right with {believed.quality[row]:.0%}, "
        f"{record.classes[other]} with {believed.confidence[row]:.0%}"
    )
    count = int(trusted[likely])
    if count < trusted.double().mean():
        reason += f"; only {count} trusted of {record.classes[likely]}"
    return reason
