"""What a source found, row by row, before anything is checked or decoded."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import overload

import numpy as np
import pandas as pd

from karat.data.decoding import Encoded
from karat.data.readers import Array
from karat.errors import UserError

NOISY, TRUSTED, TEST = 0, 1, 2  # parts
SPLITS = {"train": NOISY, "trusted": TRUSTED, "test": TEST, "val": TEST, "validation": TEST}


class Cells(Sequence[Encoded]):
    """Images that are fetched one by one, such as from a file mapped into memory."""

    def __init__(self, fetch: Callable[[int], Encoded], rows: Array) -> None:
        self._fetch, self._rows = fetch, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Encoded: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Encoded]: ...
    def __getitem__(self, place: int | slice) -> Encoded | Sequence[Encoded]:
        if isinstance(place, slice):
            return Cells(self._fetch, self._rows[place])
        return self._fetch(int(self._rows[place]))


@dataclass(frozen=True, eq=False)
class Rows:
    """Labels as the user wrote them ('' where there is none), the part of each row, and images or features.

    `places` are the numbers of the rows in the user's data, `names` what the user calls them; `has_ids`: the user says
    that these are ids, so those of a file must differ. `files` tells the files apart from which the rows came.
    `class_order` is the order of the classes where the source has one.
    """

    source: str
    labels: list[str]
    parts: Array
    places: Array
    names: list[str] | None = None
    has_ids: bool = False
    files: Array | None = None
    images: Sequence[Encoded] | None = None
    features: pd.DataFrame | None = None
    class_order: tuple[str, ...] = ()
    path_column: str | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, chosen: Array) -> "Rows":
        """Return the rows at these indices."""
        indices = chosen.tolist()
        images = self.images
        return replace(
            self,
            labels=[self.labels[row] for row in indices],
            parts=self.parts[chosen],
            places=self.places[chosen],
            names=None if self.names is None else [self.names[row] for row in indices],
            files=None if self.files is None else self.files[chosen],
            images=None if images is None else Cells(images.__getitem__, chosen),
            features=None if self.features is None else self.features.iloc[chosen],
        )

    def name(self, row: int) -> str:
        """Return what to call a row in a message."""
        return f"row {self.places[row]}" if self.names is None else self.names[row]


def join(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several sources, one after the other; all have images, or all have the same features."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for other in parts[1:]:
        if (other.images is None) != (first.images is None):
            kinds = {part.source: "images" if part.images is not None else "features" for part in (first, other)}
            raise UserError(
                f"{' and '.join(f'{source} has {kind}' for source, kind in kinds.items())}: give both the same kind."
            )
    starts = [0, *accumulate(int(part.places.max(initial=-1)) + 1 for part in parts)]
    names = None
    if any(part.names is not None for part in parts):
        names = [part.name(row) for part in parts for row in range(len(part))]
    features = None
    if first.features is not None:
        features = pd.concat([_like(first, part) for part in parts], ignore_index=True)
    return replace(
        first,
        labels=[label for part in parts for label in part.labels],
        parts=np.concatenate([part.parts for part in parts]),
        places=np.concatenate([part.places + start for part, start in zip(parts, starts, strict=False)]),
        names=names,
        has_ids=all(part.has_ids for part in parts),
        files=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        images=None if first.images is None else _chained([part.images or () for part in parts]),
        features=features,
        class_order=tuple(dict.fromkeys(name for part in parts for name in part.class_order)),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _like(first: Rows, part: Rows) -> pd.DataFrame:
    """Return the features of a part in the order of the first's, which it must have."""
    assert first.features is not None
    assert part.features is not None
    absent = [name for name in first.features.columns if name not in part.features.columns]
    if absent:
        raise UserError(
            f"{part.source} has no column {', '.join(absent[:10])}, which {first.source} has: add it, or name the "
            "columns that both have in --data.features."
        )
    return part.features[list(first.features.columns)]


def _chained(parts: Sequence[Sequence[Encoded]]) -> Cells:
    starts = [0, *accumulate(len(part) for part in parts)]

    def fetch(place: int) -> Encoded:
        number = bisect_right(starts, place) - 1
        return parts[number][place - starts[number]]

    return Cells(fetch, np.arange(starts[-1]))
