"""Tables in .csv, .tsv, .jsonl and .parquet files. Text stays text: '01' and 'NA' are what they say."""

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from karat.data.columns import expand_lists
from karat.data.readers import Array
from karat.errors import UserError
from karat.files.memory_need import refuse_large_text
from karat.files.required import require
from karat.files.text_tables import TEXT_ENDINGS, read_text_table, refuse_doubles

LINES_ENDINGS = (".jsonl", ".jsonl.gz")
TABLE_ENDINGS = (*TEXT_ENDINGS, *LINES_ENDINGS, ".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class Table:
    """A table; columns of bytes are not in the frame but fetched cell by cell (bytes, or a dict with bytes and path).

    `class_names` are the names of the classes in their order, for the columns whose source knows them.
    """

    source: str
    frame: pd.DataFrame
    encoded: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns."""
        return [*map(str, self.frame.columns), *self.encoded]


def read_table(path: Path) -> Table:
    """Read a table by the ending of its file; expand columns of lists."""
    require(path, "check the path")
    readers = {TEXT_ENDINGS: _read_text, LINES_ENDINGS: _read_lines}
    read = next((read for endings, read in readers.items() if path.name.lower().endswith(endings)), _read_parquet)
    frame, encoded = read(path)
    return Table(str(path), expand_lists(frame, str(path)), encoded)


def _read_text(path: Path) -> tuple[pd.DataFrame, dict[str, Callable[[int], Any]]]:
    frame = read_text_table(path).rename(columns=str.strip)
    refuse_doubles(path, frame.columns.tolist())
    return frame, {}


def _read_lines(path: Path) -> tuple[pd.DataFrame, dict[str, Callable[[int], Any]]]:
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
    return pd.DataFrame(rows, dtype=object), {}


def _read_parquet(path: Path) -> tuple[pd.DataFrame, dict[str, Callable[[int], Any]]]:
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]

    try:
        table = parquet.read_table(path)
    except (OSError, ValueError, ArrowException) as error:
        raise UserError(f"{path} is not a readable parquet file ({error}): write it again.") from error
    return split_arrow(table)


def split_arrow(table: Any) -> tuple[pd.DataFrame, dict[str, Callable[[int], Any]]]:
    """Return an arrow table as a frame and, apart, its columns of bytes, or of dicts with bytes, cell by cell."""
    from pyarrow import types

    def holds_bytes(kind: Any) -> bool:
        if types.is_struct(kind):
            return any(part.name in ("bytes", "path") for part in kind)
        return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)

    names = [part.name for part in table.schema if holds_bytes(part.type)]

    def fetcher(name: str) -> Callable[[int], Any]:
        column = table[name]
        return lambda row: column[row].as_py()

    frame = table.drop_columns(names).to_pandas(ignore_metadata=True)
    if not len(frame.columns):
        frame = pd.DataFrame(index=range(table.num_rows))
    return frame, {name: fetcher(name) for name in names}


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
