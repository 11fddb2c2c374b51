"""The columns of a table become vectors: numbers are standardised, categories get one input a level."""

import datetime
import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from karat.data.arrays import mean_and_scale, standardise
from karat.data.readers import Array
from karat.data.remedies import ON_THE_COMMAND_LINE, Remedies
from karat.errors import UserError

MAX_LEVELS = 50
_EXACT = 2.0**53  # larger floats are no longer exact integers, and would be long ones
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))  # in a column of numbers; elsewhere they are levels
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?|\d{1,2}[./]\d{1,2}[./]\d{4}")


@dataclass(frozen=True)
class Column:
    """One feature column of a table: a number that is standardised, or a category that becomes one input a level.

    A number is `(value − mean) / scale`, and 0 where the scale is 0, which says that it was constant. Where `fill` is
    given, a missing number becomes that value, and one more input is 1 where it was missing. A category is 1 at the
    place of its level; where `other` is set, levels not listed share one more input, and else all inputs are 0.
    """

    name: str
    kind: Literal["number", "category"]
    mean: float = 0.0
    scale: float = 1.0
    fill: float | None = None
    levels: tuple[str, ...] = ()
    other: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the inputs that this column becomes.

        >>> Column("age", "number", fill=30.0).inputs
        ('age', 'age is missing')
        >>> Column("town", "category", levels=("Bonn", "Rome"), other=True).inputs
        ('town=Bonn', 'town=Rome', 'town is another')
        """
        if self.kind == "number":
            return (self.name,) if self.fill is None else (self.name, f"{self.name} is missing")
        levels = tuple(f"{self.name}={level}" for level in self.levels)
        return (*levels, f"{self.name} is another") if self.other else levels


def fit_columns(
    frame: pd.DataFrame,
    missing: str,
    problems: list[str],
    notes: list[str],
    remedies: Remedies = ON_THE_COMMAND_LINE,
) -> tuple[Column, ...]:
    """Learn from the train rows how each column becomes inputs; every column that cannot is one sentence in `problems`.

    `missing` is what to do about missing numbers: "error", or "impute" the median and say so in one more input.

    >>> frame = pd.DataFrame({"age": [30, 50], "town": ["Rome", "Bonn"]})
    >>> [column.inputs for column in fit_columns(frame, "error", [], [])]
    [('age',), ('town=Bonn', 'town=Rome')]
    """
    columns, gaps, infinite, constant = [], {}, {}, []
    for name in map(str, frame.columns):
        series = frame[name]
        if _holds_dates(series):
            problems.append(
                f"Column '{name}' holds dates: turn them into numbers, such as the year or the days since a day, or "
                f"{remedies.leave_out}."
            )
            continue
        values = numbers_of(series)
        if values is None:
            column = _category(name, series, notes, remedies)
            constant += [name] * (len(column.levels) < 2)
            columns.append(column)
            continue
        known = values[~np.isnan(values)]
        if not len(known):
            problems.append(f"Column '{name}' is empty in all train rows: {remedies.leave_out}.")
            continue
        if np.isinf(known).any():
            infinite[name] = int(np.isinf(known).sum())
            continue
        lost = len(values) - len(known)
        if lost and missing == "error":
            gaps[name] = lost
            continue
        fill = float(np.median(known)) if missing == "impute" else None
        column = _number(name, values if fill is None else np.where(np.isnan(values), fill, values), fill)
        constant += [name] * (column.scale == 0)
        columns.append(column)
    if gaps:
        problems.append(
            f"Numbers are missing in the train rows ({_counts(gaps)}): fill them in, leave these rows out, or "
            f"{remedies.fill_in}."
        )
    if infinite:
        problems.append(
            f"Numbers are infinite in the train rows ({_counts(infinite)}): correct them or leave them empty."
        )
    if constant:
        notes.append(f"The same value in all train rows, so without effect: {_listed(constant)}.")
    return tuple(columns)


def encode(columns: Sequence[Column], frame: pd.DataFrame) -> Tensor:
    """Return the inputs of a table that has these columns, in any order; other columns do not count.

    >>> columns = [Column("age", "number", mean=40, scale=10), Column("town", "category", levels=("Bonn", "Rome"))]
    >>> encode(columns, pd.DataFrame({"town": ["Rome", "Oslo"], "age": [50, 40]})).tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    absent = [column.name for column in columns if column.name not in frame.columns]
    if absent:
        raise UserError(
            f"The table has no column {_listed(absent)}, and the model needs {'it' if len(absent) == 1 else 'them'}: "
            "add what is missing, under the names that the training data had."
        )
    inputs = torch.empty(len(frame), sum(len(column.inputs) for column in columns))
    place, gaps = 0, {}
    for column in columns:
        width = len(column.inputs)
        part = inputs[:, place : place + width]
        place += width
        if column.kind == "category":
            _one_hot(column, frame[column.name], part)
            continue
        values = _numbers(column, frame[column.name])
        lost = np.isnan(values)
        if column.fill is not None:
            values = np.where(lost, column.fill, values)
            part[:, 1] = torch.from_numpy(lost)
        elif lost.any():
            gaps[column.name] = int(lost.sum())
            continue
        part[:, :1] = standardise(values[:, None], np.array(column.mean), np.array(column.scale))
    if gaps:
        raise UserError(
            f"Numbers are missing ({_counts(gaps)}): fill them in or leave these rows out; "
            "a model that was trained with --data.missing impute fills them in itself."
        )
    return inputs


def expand_lists(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Put one column for each element in the place of columns of lists, such as embeddings.

    >>> expand_lists(pd.DataFrame({"e": [[1, 2], [3, 4]], "f": [5, 6]}), "mine").columns.tolist()
    ['e[0]', 'e[1]', 'f']
    """
    lists = [name for name in map(str, frame.columns) if _holds_lists(frame[name])]
    if not lists:
        return frame
    parts: list[pd.DataFrame] = []
    for name in map(str, frame.columns):
        series = frame[name]
        if name not in lists:
            parts.append(series.to_frame())
            continue
        lengths = {np.shape(cell) for cell in series}
        if len(lengths) != 1 or len(next(iter(lengths))) != 1:
            raise UserError(
                f"The lists in column '{name}' of {source} are not all of one length: give each row as many numbers."
            )
        values = np.stack([np.asarray(cell) for cell in series])
        names = [f"{name}[{place}]" for place in range(values.shape[1])]
        parts.append(pd.DataFrame(values, columns=names, index=frame.index))
    return pd.concat(parts, axis=1)


def numbers_of(series: pd.Series) -> Array | None:
    """Return a column as floats, NaN where a number is missing; None where it holds anything but numbers.

    >>> numbers_of(pd.Series(["1", " 2.5 ", "NA", ""]))
    array([1. , 2.5, nan, nan])
    >>> numbers_of(pd.Series(["1", "many"]))
    """
    if isinstance(series.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(series.dtype):
        return None
    if pd.api.types.is_numeric_dtype(series.dtype):
        if pd.api.types.is_complex_dtype(series.dtype):
            return None
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    texts = column_text(series).str.strip()
    lost = texts.str.lower().isin(_MISSING).to_numpy(dtype=bool)
    values = pd.to_numeric(texts.where(~lost, "nan"), errors="coerce").to_numpy(dtype=np.float64)
    return None if (np.isnan(values) & ~lost).any() else values


def column_text(series: pd.Series) -> pd.Series:
    """Return a column as text, cell by cell; missing cells are the empty text.

    >>> column_text(pd.Series([1.0, None])).tolist(), column_text(pd.Series(["01", None, True])).tolist()
    (['1', ''], ['01', '', 'True'])
    """
    if isinstance(series.dtype, pd.StringDtype):
        return series.fillna("")
    return pd.Series([cell_text(cell) for cell in series.tolist()], index=series.index, dtype=str)


def cell_text(cell: object) -> str:
    """Return a cell as text: whole floats as integers, all other numbers as they are.

    >>> cell_text(3.0), cell_text("03"), cell_text(0.1), cell_text(1234567.0), cell_text(1e300), cell_text(None)
    ('3', '03', '0.1', '1234567', '1e+300', '')
    """
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if cell is None or cell is pd.NA or cell is pd.NaT or cell != cell:  # NaN is not itself
        return ""
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer() and abs(cell) < _EXACT:
        return str(int(cell))
    return str(cell)


def _numbers(column: Column, series: pd.Series) -> Array:
    values = numbers_of(series)
    if values is None:
        texts = column_text(series)
        wrong = next((text for text in texts if numbers_of(pd.Series([text])) is None), "")
        raise UserError(
            f"Column '{column.name}' held numbers in the train rows and has '{wrong}' here: write numbers in it."
        )
    if np.isinf(values).any():
        raise UserError(f"Column '{column.name}' has infinite numbers: correct them.")
    return values


def _number(name: str, values: Array, fill: float | None) -> Column:
    mean, scale = mean_and_scale(values[:, None])
    return Column(name, "number", float(mean[0]), float(scale[0]), fill)


def _category(name: str, series: pd.Series, notes: list[str], remedies: Remedies) -> Column:
    counts = _levels(series).value_counts()
    if len(counts) <= MAX_LEVELS:
        return Column(name, "category", levels=tuple(sorted(counts.index)))
    notes.append(
        f"Column '{name}' has {len(counts):,} different texts: the {MAX_LEVELS} most frequent ones are told apart; if "
        f"it is no category, {remedies.leave_out}."
    )
    frequent = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:MAX_LEVELS]
    return Column(name, "category", levels=tuple(sorted(str(level) for level, _ in frequent)), other=True)


def _one_hot(column: Column, series: pd.Series, part: Tensor) -> None:
    """Fill the part with zeros, and ones at the levels, in place."""
    codes = torch.from_numpy(pd.Index(list(column.levels), dtype=object).get_indexer(_levels(series).astype(object)))
    part.zero_()
    known = (codes >= 0).nonzero().flatten()
    part[known, codes[known]] = 1.0
    if column.other:
        part[codes < 0, len(column.levels)] = 1.0


def _levels(series: pd.Series) -> pd.Series:
    """Return a column as text in which truth values look alike, whatever file they come from."""
    texts = column_text(series)
    lower = texts.str.lower()
    return texts.where(~lower.isin(("true", "false")), lower)


def _holds_lists(series: pd.Series) -> bool:
    first = next((cell for cell in series if cell is not None), None) if series.dtype == object else None
    return isinstance(first, (list, tuple, np.ndarray))


def _holds_dates(series: pd.Series) -> bool:
    if series.dtype.kind in "mM" or isinstance(series.dtype, (pd.DatetimeTZDtype, pd.PeriodDtype)):
        return True
    if pd.api.types.is_numeric_dtype(series.dtype) or isinstance(series.dtype, pd.CategoricalDtype):
        return False
    cells = [cell for cell in series.head(1000).tolist() if cell_text(cell).strip()][:20]
    if any(isinstance(cell, (datetime.date, datetime.time, datetime.timedelta)) for cell in cells):
        return True
    if cells and all(isinstance(cell, numbers.Number) for cell in cells):
        return False
    return bool(cells) and all(_DATE.fullmatch(cell_text(cell).strip()) for cell in cells)


def _counts(counts: dict[str, int]) -> str:
    return _listed([f"{count} in '{name}'" for name, count in counts.items()])


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:10]) + (f" and {len(items) - 10} more" if len(items) > 10 else "")
