"""Tables in .csv, .tsv, .jsonl and .parquet files. Text stays text: '01' and 'NA' are what they say."""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

from karat.data.blocks import KeptBlocks
from karat.data.columns import expand_lists
from karat.data.decoding import Encoded
from karat.data.readers import Array
from karat.data.sources.parquet_files import PARQUET_ENDINGS, ParquetImages, group_notes, read_parquet
from karat.data.sources.problems import DamagedShard
from karat.errors import UserError
from karat.files.addresses import PlacedFile
from karat.files.memory_need import refuse_large_text
from karat.files.required import require
from karat.files.text_tables import TEXT_ENDINGS, read_text_table, refuse_doubles

LINES_ENDINGS = (".jsonl", ".jsonl.gz")
TABLE_ENDINGS = (*TEXT_ENDINGS, *LINES_ENDINGS, *PARQUET_ENDINGS)


class ImageColumn(Protocol):
    """A column of encoded images, which are fetched one by one."""

    def image(self, row: int, folder: str) -> Encoded:
        """Return the image of a row; where the cell has a path, it starts from the folder."""

    def written(self) -> list[str] | None:
        """Return what is written beside the images, such as their paths, where each has a name of its own."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table; columns of encoded images are not in the frame.

    `class_names` are the names of the classes in their order, for the columns whose source knows them. `notes` are what
    the user should know.
    """

    source: str
    frame: pd.DataFrame
    encoded: Mapping[str, ImageColumn] = field(default_factory=dict)
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns."""
        return [*map(str, self.frame.columns), *self.encoded]


def read_table(path: Path) -> Table:
    """Read a table by the ending of its file; expand columns of lists."""
    require(path, "check the path")
    encoded: Mapping[str, ParquetImages] = {}
    if path.name.lower().endswith(PARQUET_ENDINGS):
        try:
            file = PlacedFile(path.name, str(path), path.stat().st_size)
            frame, encoded = read_parquet(file, KeptBlocks())
        except DamagedShard as error:
            raise UserError(f"{path} is not a readable parquet file ({error}): write it again.") from error
    else:
        frame = _read_lines(path) if path.name.lower().endswith(LINES_ENDINGS) else _read_text(path)
    return Table(str(path), expand_lists(frame, str(path)), encoded, notes=group_notes(encoded))


def _read_text(path: Path) -> pd.DataFrame:
    frame = read_text_table(path).rename(columns=str.strip)
    refuse_doubles(path, frame.columns.tolist())
    return frame


def _read_lines(path: Path) -> pd.DataFrame:
    """Read a JSON object a line; cells stay what they say."""
    rows = []
    try:
        refuse_large_text(path)
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.name.lower().endswith("gz")
            else path.open(encoding="utf-8-sig") as file
        ):
            for number, line in enumerate(file, start=1):
                if line.strip():
                    rows.append(json.loads(line))
                    if not isinstance(rows[-1], dict):
                        raise ValueError(f"line {number} is no object")
    except UserError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is no table in JSON lines ({' '.join(str(error).split())}): write one object a line, in UTF-8, "
            'such as {"text": "…", "label": "…"}.'
        ) from error
    return pd.DataFrame(rows, dtype=object)


def is_table(name: str) -> bool:
    """Return whether a file's ending is that of a table."""
    return name.lower().endswith(TABLE_ENDINGS)


def row_numbers(values: Array | None) -> bool:
    """Return whether a column only numbers the rows: 0, 1, 2, … or 1, 2, 3, …

    >>> row_numbers(np.array([0.0, 1.0, 2.0])), row_numbers(np.array([3.0, 1.0]))
    (True, False)
    """
    if values is None or not len(values) or values[0] not in (0, 1):
        return False
    return bool((np.diff(values) == 1).all())
