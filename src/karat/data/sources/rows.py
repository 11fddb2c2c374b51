"""What a source found, row by row, before anything is checked or decoded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from karat.data.examples import Skipped
from karat.data.readers import Array
from karat.data.remedies import ON_THE_COMMAND_LINE, Remedies
from karat.data.sources.content import Content
from karat.errors import UserError

NOISY, TRUSTED, TEST = 0, 1, 2  # parts
SPLITS = {"train": NOISY, "trusted": TRUSTED, "test": TEST, "val": TEST, "validation": TEST}


@dataclass(frozen=True, eq=False)
class Rows:
    """Labels as the user wrote them ('' where there is none), the part of each row, and what the rows hold.

    `places` are the numbers of the rows in the user's data, `names` what the user calls them; `has_ids`: the user says
    that these are ids, so those of a file must differ. `files` tells the files apart from which the rows came.
    `class_order` is the order of the classes where the source has one. `bad` are files of many rows, and rows, that
    cannot be read at all and are not among these. `remedies` are those of the source's users.
    """

    source: str
    labels: list[str]
    parts: Array
    places: Array
    content: Content
    names: list[str] | None = None
    has_ids: bool = False
    files: Array | None = None
    class_order: tuple[str, ...] = ()
    path_column: str | None = None
    text_column: str | None = None
    notes: tuple[str, ...] = ()
    bad: tuple[Skipped, ...] = ()
    remedies: Remedies = ON_THE_COMMAND_LINE

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, chosen: Array) -> "Rows":
        """Return the rows at these indices."""
        indices = chosen.tolist()
        return replace(
            self,
            labels=[self.labels[row] for row in indices],
            parts=self.parts[chosen],
            places=self.places[chosen],
            content=self.content.subset(chosen),
            names=None if self.names is None else [self.names[row] for row in indices],
            files=None if self.files is None else self.files[chosen],
        )

    def name(self, row: int) -> str:
        """Return what to call a row in a message."""
        return f"row {self.places[row]}" if self.names is None else self.names[row]


def join(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several sources, one after the other; all have content of one kind."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for other in parts[1:]:
        if other.content.kind != first.content.kind:
            kinds = {part.source: part.content.kind for part in (first, other)}
            raise UserError(
                f"{' and '.join(f'{source} has {kind}' for source, kind in kinds.items())}: give both the same kind."
            )
    starts = [0, *accumulate(int(part.places.max(initial=-1)) + 1 for part in parts)]
    names = None
    if any(part.names is not None for part in parts):
        names = [part.name(row) for part in parts for row in range(len(part))]
    return replace(
        first,
        labels=[label for part in parts for label in part.labels],
        parts=np.concatenate([part.parts for part in parts]),
        places=np.concatenate([part.places + start for part, start in zip(parts, starts, strict=False)]),
        content=first.content.joined([part.content for part in parts[1:]], [part.source for part in parts]),
        names=names,
        has_ids=all(part.has_ids for part in parts),
        files=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        class_order=tuple(dict.fromkeys(name for part in parts for name in part.class_order)),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        bad=tuple(skipped for part in parts for skipped in part.bad),
    )
