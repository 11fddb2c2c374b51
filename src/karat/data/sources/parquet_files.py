"""Parquet files: columns of encoded images stay in the file, a row group of them is read at once when one is needed."""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import pandas as pd
from pyarrow import ArrowException, parquet, types

from karat.data.blocks import KEPT_BYTES, Block, KeptBlocks, Stored
from karat.data.decoding import read_bytes
from karat.data.sources.problems import DamagedShard
from karat.files.addresses import PlacedFile

PARQUET_ENDINGS = (".parquet", ".pq")
_UNREADABLE = (OSError, ValueError, ArrowException)


def read_parquet(file: PlacedFile, kept: KeptBlocks) -> tuple[pd.DataFrame, dict[str, "ParquetImages"]]:
    """Return a Parquet file as a frame and, apart and unread, its columns of bytes, or of dicts with bytes."""
    try:
        opened = parquet.ParquetFile(_source(file))
        schema = opened.schema_arrow
        apart = {part.name: _has_paths(part.type) for part in schema if _holds_bytes(part.type)}
        others = [name for name in schema.names if name not in apart]
        frame = opened.read(columns=others).to_pandas(ignore_metadata=True) if others else pd.DataFrame()
        images = {
            name: ParquetImages(file, name, opened.metadata, _paths(opened, name) if has_paths else None, kept)
            for name, has_paths in apart.items()
        }
    except _UNREADABLE as error:
        raise DamagedShard(" ".join(str(error).split())) from error
    return frame if others else pd.DataFrame(index=range(opened.metadata.num_rows)), images


class ParquetImages:
    """The images in a column of a Parquet file, which are read a row group at once."""

    def __init__(
        self, file: PlacedFile, column: str, metadata: Any, paths: list[str | None] | None, kept: KeptBlocks
    ) -> None:
        self._file, self._column, self._metadata, self._paths, self._kept = file, column, metadata, paths, kept
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        self._starts = [0, *accumulate(group.num_rows for group in groups)]
        self._sizes = [_bytes_of(group, column) for group in groups]

    @property
    def largest(self) -> int:
        """Return how many bytes the largest row group has."""
        return max(self._sizes, default=0)

    def image(self, row: int, folder: str) -> Stored:
        """Return the image of a row, unread; a path in its place starts from the folder."""
        group = bisect_right(self._starts, row) - 1
        block = Block((self._file.path, self._column, group), self._sizes[group], lambda: self._load(group), self._kept)

        def read() -> bytes:
            return read_bytes(image_in(_cell(block.content(), row - self._starts[group]), folder))

        return Stored(f"{self._file.name}/{row}", str(self._file.size), read, block)

    def written(self) -> list[str] | None:
        """Return the paths beside the images where each has one of its own."""
        return own_paths(self._paths or ())

    def _load(self, group: int) -> Any:
        try:
            opened = parquet.ParquetFile(_source(self._file), metadata=self._metadata)  # for this thread alone
            return opened.read_row_group(group, columns=[self._column])[self._column]
        except _UNREADABLE as error:
            raise OSError(f"row group {group} of {self._file.name}: {' '.join(str(error).split())}") from error


def group_notes(columns: Mapping[str, "ParquetImages"]) -> tuple[str, ...]:
    """Return what the user should know of row groups of images that fill the memory."""
    if all(2 * images.largest <= KEPT_BYTES for images in columns.values()):
        return ()
    return (
        "A row group of images has more than "
        f"{KEPT_BYTES // 2**21} MB, and each is read at once: smaller ones, such as row_group_size=1000, take less "
        "memory and are shuffled better.",
    )


def image_in(cell: Any, folder: str) -> str | bytes:
    """Return what a cell has of an image: its bytes, or else the path of its file, which starts from the folder."""
    if isinstance(cell, dict):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str):
        return os.path.join(folder, cell)
    return cell if isinstance(cell, bytes) else b""


def own_paths(paths: Sequence[str | None]) -> list[str] | None:
    """Return the paths where each image has one of its own.

    >>> own_paths(["a.png", "b.png"]), own_paths(["a.png", "a.png"]), own_paths([None])
    (['a.png', 'b.png'], None, None)
    """
    return [str(path) for path in paths] if paths and paths[0] and len(set(paths)) == len(paths) else None


def _source(file: PlacedFile) -> Any:
    return file.opened() if file.is_far else file.path


def _cell(column: Any, row: int) -> Any:
    try:
        return column[row].as_py()
    except (*_UNREADABLE, IndexError) as error:
        raise OSError(" ".join(str(error).split())) from error


def _holds_bytes(kind: Any) -> bool:
    if types.is_struct(kind):
        return any(part.name in ("bytes", "path") for part in kind)
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _has_paths(kind: Any) -> bool:
    return types.is_struct(kind) and any(part.name == "path" for part in kind)


def _paths(opened: Any, column: str) -> list[str | None]:
    return [(cell or {}).get("path") for cell in opened.read(columns=[f"{column}.path"])[column].to_pylist()]


def _bytes_of(group: Any, column: str) -> int:
    parts = (group.column(number) for number in range(group.num_columns))
    return sum(part.total_uncompressed_size for part in parts if f"{part.path_in_schema}.".startswith(f"{column}."))
