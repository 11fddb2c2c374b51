"""CSV files that a spreadsheet may open without running what is in them, and that come back as they were written.

A text cell whose first character after any apostrophes is = + - @ tab or carriage return gets one apostrophe in front,
unless it is a plain number; the reader takes that one off again. All text is quoted.
"""

import csv
import re
from pathlib import Path
from typing import Any

import pandas as pd

from karat.errors import UserError
from karat.files.atomic import replacing
from karat.files.text_tables import read_text_table

_RUNS = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")

# Of the files in a run folder; every other column is text. "Int64" and "boolean" may have empty cells.
_TYPES = {
    **dict.fromkeys(("index", "times_seen", "rank"), "Int64"),
    **dict.fromkeys(("is_label_issue", "trusted"), "boolean"),
    **dict.fromkeys(("label_quality", "suggestion_confidence", "confidence"), "float64"),
    **dict.fromkeys(("mean_weight", "mean_label_trust", "mean_loss"), "float64"),
}


def escaped(cell: Any) -> Any:
    """Return a cell as it is written.

    >>> [escaped(cell) for cell in ("=1+1", "-5", "'=x", "don't", 3)]
    ["'=1+1", '-5', "''=x", "don't", 3]
    """
    return f"'{cell}" if isinstance(cell, str) and _RUNS.match(cell) and not _NUMBER.match(cell) else cell


def unescaped(cell: str) -> str:
    """Return a cell as it was before `escaped`.

    >>> [unescaped(cell) for cell in ("'=1+1", "-5", "''=x", "don't")]
    ['=1+1', '-5', "'=x", "don't"]
    """
    return cell[1:] if _ESCAPED.match(cell) else cell


def write_safe_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a table without its index, whole or not at all; missing numbers are empty cells."""
    safe = frame.rename(columns=escaped)
    for place, (_, column) in enumerate(frame.items()):
        if not pd.api.types.is_numeric_dtype(column.dtype):
            safe.isetitem(place, column.map(escaped))
    with replacing(path) as temporary:
        safe.to_csv(
            temporary,
            index=False,
            quoting=csv.QUOTE_NONNUMERIC,
            encoding="utf-8",
            errors="replace",  # of names that are no Unicode
            lineterminator="\n",
        )


def read_safe_csv(path: str | Path) -> pd.DataFrame:
    """Read a CSV file of a run folder: text as it was, "NA" and "null" too; numbers where the column is one of ours."""
    path = Path(path)
    table = read_text_table(path, "export it again").rename(columns=unescaped)
    for place, name in enumerate(table.columns):
        column = table.iloc[:, place]
        table.isetitem(place, _typed(column, name, path) if name in _TYPES else column.map(unescaped))
    return table


def _typed(column: pd.Series, name: str, path: Path) -> pd.Series:
    kind = _TYPES[name]
    filled = column.str.strip().replace("", None)
    if kind == "boolean":
        truth = filled.str.lower().map({"true": True, "false": False, "1": True, "0": False})
        wrong = filled.notna() & truth.isna()
        typed = truth.astype("boolean")
    else:
        numbers = pd.to_numeric(filled, errors="coerce")
        wrong = filled.notna() & numbers.isna()
        if kind == "Int64":
            wrong |= numbers.notna() & ((numbers % 1 != 0) | (numbers.abs() >= 2.0**63))
        typed = numbers.where(~wrong).astype(kind)
    if wrong.any():
        line = int(wrong.to_numpy().argmax())
        expected = {"boolean": "true or false", "Int64": "a whole number", "float64": "a number"}[kind]
        raise UserError(f"{path} has '{column.iloc[line]}' as {name} of row {line + 1}: write {expected}.")
    if kind == "float64" or typed.isna().any():
        return typed
    return typed.astype("bool") if kind == "boolean" else typed.astype("int64")
