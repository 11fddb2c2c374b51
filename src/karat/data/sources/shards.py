"""Shards: tar and Parquet files that are one dataset together, in a folder, under a pattern or at an address."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from karat.data.blocks import KeptBlocks
from karat.data.columns import expand_lists
from karat.data.decoding import IMAGE_ENDINGS
from karat.data.examples import Skipped
from karat.data.settings import DataSettings
from karat.data.sources.folders import TEXT_FILE_ENDINGS
from karat.data.sources.parquet_files import PARQUET_ENDINGS, group_notes, read_parquet
from karat.data.sources.problems import DamagedShard, Problems
from karat.data.sources.rows import SPLITS, TEST, TRUSTED, Rows, join
from karat.data.sources.table_files import Table
from karat.data.sources.tables import rows_of_table
from karat.data.sources.tar_files import read_tar
from karat.errors import UserError
from karat.files.addresses import PlacedFile, is_address, is_pattern, list_files

TAR_ENDING = ".tar"
SHARD_ENDINGS = (TAR_ENDING, *PARQUET_ENDINGS)
_PART = re.compile(f"({'|'.join(SPLITS)})[-_.0-9]", re.IGNORECASE)


def is_shards(name: str) -> bool:
    """Return whether a name is that of shards: an address, a pattern, a tar file, or a folder of tar and Parquet files.

    What tells about the shards may lie beside them; a folder with images, texts or other folders is read as those.
    """
    if is_address(name) or is_pattern(name) or name.lower().endswith(TAR_ENDING):
        return True
    if not Path(name).is_dir():
        return False
    entries = [entry for entry in os.scandir(name) if not entry.name.startswith(".")]
    names = [entry.name.lower() for entry in entries]
    if not any(name.endswith(SHARD_ENDINGS) for name in names) or any(entry.is_dir() for entry in entries):
        return False
    single = (*IMAGE_ENDINGS, *TEXT_FILE_ENDINGS)
    return not any(name.endswith(single) and not name.startswith("readme") for name in names)


def read_shards(data: DataSettings) -> Rows:
    """List the rows of shards, and of those with trusted and test rows; images stay in their files."""
    kept = KeptBlocks()  # one for all: memory is shared
    rows = [rows_of_shards(data, kept)]
    for extra, part in ((data.trusted, TRUSTED), (data.test, TEST)):
        if extra is not None:
            rows.append(rows_of_shards(replace(data, name=str(extra)), kept, part, is_extra=True))
    return join(rows)


def rows_of_shards(
    data: DataSettings,
    kept: KeptBlocks,
    part: int | None = None,
    labelled: bool = True,
    settings_of: Callable[[Table], DataSettings] | None = None,
    is_extra: bool = False,
) -> Rows:
    """List the rows of all shards under one name; those of shards that cannot be read are missing, and `bad` says why.

    All rows belong to `part` where it is given, or else to the part that a shard's name begins with. `settings_of` are
    those for a table, where they depend on its columns. `is_extra`: names of rows begin with the shards' folder.
    """
    files = list_files(data.name, SHARD_ENDINGS)
    if not files:
        raise UserError(
            f"There are no shards {data.name}: give a folder or a pattern, such as 'shards/*.tar', of files on "
            f"{', '.join(SHARD_ENDINGS)}."
        )
    parts: list[Rows] = []
    bad: list[Skipped] = []
    for file in files:
        try:
            table, damaged = _table(file, data, kept)
        except DamagedShard as error:
            bad.append(Skipped(file.name, str(error)))
            continue
        bad += damaged
        if not len(table.frame):
            continue  # all its rows are damaged
        settings = data if settings_of is None else settings_of(table)
        rows = rows_of_table(table, settings, Path(file.folder), part or _part_of(file), labelled)
        parts.append(_named(rows, file, is_extra))
    if not parts:
        Problems(data.name, "file", bad).stop()
    # The noisy rows come first, so that their numbers do not change when others are verified.
    parts.sort(key=lambda rows: int(rows.parts.min()))
    return replace(join(parts), source=data.name, bad=tuple(bad))


def _table(file: PlacedFile, data: DataSettings, kept: KeptBlocks) -> tuple[Table, list[Skipped]]:
    if file.path.lower().endswith(TAR_ENDING):
        return read_tar(file, data, kept)
    frame, encoded = read_parquet(file, kept)
    if not len(frame):
        raise DamagedShard("it has no rows")
    return Table(file.name, expand_lists(frame, file.name), encoded, notes=group_notes(encoded)), []


def _part_of(file: PlacedFile) -> int | None:
    """Return the part that a shard's name begins with, such as `test-0003.tar`; rows of train may have marks."""
    found = _PART.match(os.path.basename(file.path))
    return SPLITS[found[1].lower()] or None if found else None


def _named(rows: Rows, file: PlacedFile, is_extra: bool) -> Rows:
    """Return rows whose names begin with that of their shard, unless they are ids."""
    if rows.has_ids:
        return rows
    shard = f"{os.path.basename(file.folder)}/{file.name}" if is_extra else file.name
    names = rows.names or [str(place) for place in rows.places.tolist()]
    return replace(rows, names=[f"{shard}/{name}" for name in names])
