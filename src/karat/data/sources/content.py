"""What the rows of a source hold, as the user brought it. A new kind of content is one more class here."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, overload

import numpy as np
import pandas as pd

from karat.data.arrays import check_inputs
from karat.data.cells import Cells
from karat.data.columns import fit_columns
from karat.data.decoding import Encoded
from karat.data.images import ImageFiles, Inputs
from karat.data.readers import Array
from karat.data.remedies import Remedies
from karat.data.schema import Schema, array_schema
from karat.data.settings import DataForNetwork, DataSettings
from karat.data.sources.image_check import check_images
from karat.data.sources.image_shapes import choose_shape
from karat.data.sources.problems import Problems, counted
from karat.data.text import LONGEST, fit_encoder
from karat.errors import UserError

ArrayT = TypeVar("ArrayT", bound="_InMemory")

_QUICKLY_CHECKED = 20_000  # so many images are decoded even where something else is wrong already


class Looked(NamedTuple):
    """Rows that were looked at: why some cannot be read, and on demand a key that equal rows share, and the inputs."""

    unreadable: dict[int, str]
    keys: Callable[[], Sequence[Hashable]]
    inputs: Callable[[], Inputs]


class Content(Protocol):
    """What is asked of every kind of content.

    `kind` is what all parts of the data must share, `noun` is one row in a sentence, `identifies`: rows of equal
    content are the same example, which is certain of images alone.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    identifies: ClassVar[bool]

    def __len__(self) -> int: ...

    def subset(self, rows: Array) -> "Content":
        """Return the content of these rows."""

    def joined(self, others: Sequence[Any], sources: Sequence[str]) -> "Content":
        """Return this content and others of its kind, one after the other; `sources` are what to call them all."""

    def fit(self, train: Array, data: DataSettings, remedies: Remedies, problems: Problems) -> Schema:
        """Learn from the train rows (a mask) how the content becomes inputs; what hinders it goes into `problems`."""

    def look(self, schema: Schema) -> Looked:
        """Look at all rows, which become inputs as the schema says."""

    def cells(self, places: Array) -> Cells | None:
        """Return what a person sees of the rows, which stand at these places of the data; None: their pictures."""


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images in files, or encoded in memory."""

    images: Sequence[Encoded]
    kind: ClassVar[str] = "images"
    noun: ClassVar[str] = "image"
    identifies: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, rows: Array) -> "EncodedImages":
        """Return these images; nothing is opened."""
        return EncodedImages(Fetched(self.images.__getitem__, rows))

    def joined(self, others: Sequence["EncodedImages"], sources: Sequence[str]) -> "EncodedImages":
        """Return all images, one after the other."""
        return EncodedImages(_chained([part.images for part in (self, *others)]))

    def fit(self, train: Array, data: DataSettings, remedies: Remedies, problems: Problems) -> Schema:
        """Choose the size and the channels that all images are brought to."""
        if len(self) > _QUICKLY_CHECKED:
            problems.stop()
        network = data.photographs if isinstance(data, DataForNetwork) else None
        return Schema(choose_shape(self.images, data.image_size, problems.notes, network))

    def look(self, schema: Schema) -> Looked:
        """Decode all images once."""
        channels, height, width = schema.shape
        files = ImageFiles(self.images, (height, width), channels=channels)
        unreadable, digests = check_images(files)
        return Looked(unreadable, lambda: digests, lambda: files)

    def cells(self, places: Array) -> None:
        """Return nothing: pictures are shown."""


@dataclass(frozen=True, eq=False)
class Features:
    """The columns of a table that are learned from."""

    frame: pd.DataFrame
    kind: ClassVar[str] = "features"
    noun: ClassVar[str] = "feature row"
    identifies: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.frame)

    def subset(self, rows: Array) -> "Features":
        """Return these rows of the table."""
        return Features(self.frame.iloc[rows])

    def joined(self, others: Sequence["Features"], sources: Sequence[str]) -> "Features":
        """Return all rows, with the columns in the order of the first table's."""
        names = list(self.frame.columns)
        for other, source in zip(others, sources[1:], strict=True):
            absent = [name for name in names if name not in other.frame.columns]
            if absent:
                raise UserError(
                    f"{source} has no column {', '.join(absent[:10])}, which {sources[0]} has: add it, or name the "
                    "columns that both have in --data.features."
                )
        frames = [self.frame, *(other.frame[names] for other in others)]
        return Features(pd.concat(frames, ignore_index=True))

    def fit(self, train: Array, data: DataSettings, remedies: Remedies, problems: Problems) -> Schema:
        """Learn mean and deviation of the numbers, and the levels of the categories."""
        columns = fit_columns(self.frame[train], data.missing, problems.errors, problems.notes, remedies)
        return Schema((sum(len(column.inputs) for column in columns),), columns)

    def look(self, schema: Schema) -> Looked:
        """Hash the rows and encode them where that is asked for."""
        return Looked({}, self._keys, lambda: schema.inputs_of(self.frame))

    def cells(self, places: Array) -> Cells:
        """Return the table itself."""
        return Cells(self.frame, places)

    def _keys(self) -> Sequence[Hashable]:
        mixed = {name: str for name, kind in self.frame.dtypes.items() if kind.kind == "O"}
        return pd.util.hash_pandas_object(self.frame.astype(mixed), index=False).tolist()


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts in memory; `unreadable` says of those that were no text at all why, and is empty for all others."""

    texts: Sequence[str]
    unreadable: Sequence[str] = ()
    kind: ClassVar[str] = "texts"
    noun: ClassVar[str] = "text"
    identifies: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, rows: Array) -> "Texts":
        """Return these texts."""
        chosen = rows.tolist()
        return Texts([self.texts[row] for row in chosen], [self._why(row) for row in chosen])

    def joined(self, others: Sequence["Texts"], sources: Sequence[str]) -> "Texts":
        """Return all texts, one after the other."""
        parts = (self, *others)
        texts = [text for part in parts for text in part.texts]
        return Texts(texts, [part._why(row) for part in parts for row in range(len(part))])

    def fit(self, train: Array, data: DataSettings, remedies: Remedies, problems: Problems) -> Schema:
        """Learn the terms of the train texts, or take the encoder that is named."""
        chosen = [self.texts[row] for row in np.flatnonzero(train).tolist() if not self._why(row)]
        bare = sum(not text.strip() for text in self.texts)
        if bare == len(self):
            problems.errors.append(
                f"{counted(bare, 'row', 'has/have')} no text: name the column in --data.text_column."
            )
        problems.stop()  # an encoder takes long
        encoder = fit_encoder(data.encoder, chosen, data.download)
        return Schema((encoder.width,), encoder=encoder)

    def look(self, schema: Schema) -> Looked:
        """Find the texts that are none, and encode the others where that is asked for."""
        unreadable = {row: why for row in range(len(self)) if (why := self._why(row))}
        texts = ["" if row in unreadable else text for row, text in enumerate(self.texts)]
        return Looked(unreadable, lambda: self.texts, lambda: schema.inputs_of(texts))

    def cells(self, places: Array) -> Cells:
        """Return the texts."""
        return Cells(pd.DataFrame({"text": list(self.texts)}, dtype=object), places, are_texts=True)

    def _why(self, row: int) -> str:
        """Return why a text cannot be read; nothing where it can."""
        if self.unreadable and self.unreadable[row]:
            return self.unreadable[row]
        text = self.texts[row]
        if len(text) > LONGEST:
            return f"it has {len(text):,} characters, and no more than {LONGEST:,} are read: cut it into parts"
        return "" if any(one.isalnum() for one in text) else "there is no text in it"


@dataclass(frozen=True, eq=False)
class _InMemory:
    """What vectors and images in an array share."""

    array: Array

    def __len__(self) -> int:
        return len(self.array)

    def subset(self: ArrayT, rows: Array) -> ArrayT:
        """Return these rows of the array."""
        return type(self)(self.array[rows])

    def joined(self: ArrayT, others: Sequence[ArrayT], sources: Sequence[str]) -> ArrayT:
        """Return all rows, one after the other."""
        arrays = [self.array, *(other.array for other in others)]
        for array, source in zip(arrays, sources, strict=True):
            if array.shape[1:] != self.array.shape[1:]:
                raise UserError(
                    f"An example has shape {self.array.shape[1:]} in {sources[0]} and {array.shape[1:]} in {source}: "
                    "give both the same shape."
                )
        return type(self)(np.concatenate(arrays))

    def look(self, schema: Schema) -> Looked:
        """Hash the rows and scale them where that is asked for."""

        def keys() -> Sequence[Hashable]:
            return [hashlib.blake2b(row, digest_size=16).digest() for row in np.ascontiguousarray(self.array)]

        return Looked({}, keys, lambda: schema.inputs_of(self.array))


class Vectors(_InMemory):
    """Vectors (N,F) in memory."""

    kind: ClassVar[str] = "vectors"
    noun: ClassVar[str] = "feature row"
    identifies: ClassVar[bool] = False

    def fit(self, train: Array, data: DataSettings, remedies: Remedies, problems: Problems) -> Schema:
        """Learn mean and deviation of each feature."""
        # Whole, where it is whole: a copy in another memory order would be summed up in another order.
        return array_schema(self.array if train.all() else self.array[train])

    def cells(self, places: Array) -> Cells:
        """Return the array itself."""
        return Cells(self.array, places)


class Pixels(_InMemory):
    """Images (N,H,W), (N,H,W,C) or (N,C,H,W) in memory, all of one size."""

    kind: ClassVar[str] = "images in an array"
    noun: ClassVar[str] = "image"
    identifies: ClassVar[bool] = True

    def joined(self, others: Sequence["Pixels"], sources: Sequence[str]) -> "Pixels":
        """Return all images, one after the other; bytes and floats do not mix."""
        arrays = [self.array, *(other.array for other in others)]
        if len({array.dtype == np.uint8 for array in arrays}) > 1:
            kinds = " and ".join(f"{array.dtype} ({source})" for array, source in zip(arrays, sources, strict=True))
            raise UserError(f"The images are {kinds}: give uint8, or floats in [0, 1] or [-1, 1], in both parts.")
        return super().joined(others, sources)

    def fit(self, train: Array, data: DataSettings, remedies: Remedies, problems: Problems) -> Schema:
        """Learn what the numbers mean: 0 to 255, 0 to 1, or -1 to 1."""
        return array_schema(self.array)

    def cells(self, places: Array) -> None:
        """Return nothing: pictures are shown."""


def array_content(name: str, inputs: Array) -> Vectors | Pixels:
    """Return the content of an array of numbers, which is called by its name in an error: two axes are vectors."""
    check_inputs(name, inputs)
    return Vectors(inputs) if inputs.ndim == 2 else Pixels(inputs)


class Fetched(Sequence[Encoded]):
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
            return Fetched(self._fetch, self._rows[place])
        return self._fetch(int(self._rows[place]))


def _chained(parts: Sequence[Sequence[Encoded]]) -> Fetched:
    starts = [0, *accumulate(len(part) for part in parts)]

    def fetch(place: int) -> Encoded:
        number = bisect_right(starts, place) - 1
        return parts[number][place - starts[number]]

    return Fetched(fetch, np.arange(starts[-1]))
