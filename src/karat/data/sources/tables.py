"""The rows of a table: which columns are labels, images, features, and which rows are trusted or for the test."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from karat.data.columns import column_text, numbers_of
from karat.data.readers import Array
from karat.data.settings import DataSettings
from karat.data.sources.content import Content, EncodedImages, Features, Fetched, Texts
from karat.data.sources.problems import counted
from karat.data.sources.rows import NOISY, SPLITS, TEST, TRUSTED, Rows, join
from karat.data.sources.table_files import TABLE_ENDINGS, Table, is_table, read_table, row_numbers
from karat.errors import UserError, named, suggestion

IMAGE_COLUMNS = ("path", "image")
TEXT_COLUMN = "text"
_TRUE, _FALSE = ("true", "1", "yes", "y", "t"), ("false", "0", "no", "n", "f", "")
_INDEX_NAMES = ("", "index", "Unnamed: 0", "__index_level_0__")  # how row numbers come into tables unasked


def read_tables(data: DataSettings) -> Rows:
    """Read a table, and those with trusted and test rows."""
    path = Path(data.name)
    rows = [rows_of_table(read_table(path), data, path.parent)]
    for extra, part, option in ((data.trusted, TRUSTED, "trusted"), (data.test, TEST, "test")):
        if extra is not None:
            other = Path(extra)
            if not is_table(other.name):
                raise UserError(f"--data.{option} is {extra}: give a table as {path} is, {', '.join(TABLE_ENDINGS)}.")
            rows.append(rows_of_table(read_table(other), data, other.parent, part))
    return join(rows)


def rows_of_table(table: Table, data: DataSettings, base: Path, part: int | None = None, labelled: bool = True) -> Rows:
    """Find the columns of a table; all rows belong to `part` where it is given.

    Paths of images start from `base`. Where `labelled` is not set, a label column is not needed.
    """
    if not len(table.frame):
        raise UserError(f"{table.source} has no rows: write one line for each example below the names of the columns.")
    label = _column(table, data.label_column, "label", "--data.label_column", needed=labelled)
    identity = _column(table, data.id_column, "id", "--data.id_column", needed=data.id_column != "id")
    image = None if data.features is not None else _image_column(table, data.path_column)
    text = None if data.features is not None else _text_column(table, data.text_column, image)
    image = None if text is not None else image
    special = {label, identity, image, text, "trusted", "split"}
    others = [name for name in table.columns if name not in special]
    notes = list(table.notes)
    content: Content
    names = _texts(table, identity) if identity else None
    if text is not None:
        if others:
            notes.append(f"Not used, since the texts are what is learned from: {named(others, 10)}.")
        content = Texts(_texts(table, text))
    elif image is not None:
        if others and identity != image:
            notes.append(f"Not used, since the images are what is learned from: {named(others, 10)}.")
        content, written = _images(table, image, data.path or base)
        names = names or written
    else:
        content = _features(table, others, data.features, {label, "trusted", "split"}, notes)
    labels = _texts(table, label) if label else [""] * len(table.frame)
    return Rows(
        table.source,
        labels,
        _parts(table) if part is None else np.full(len(table.frame), part),
        np.arange(len(table.frame)),
        content,
        names,
        has_ids=identity is not None,
        class_order=table.class_names.get(data.label_column, ()),
        path_column=image,
        text_column=text,
        notes=tuple(notes),
    )


def _column(table: Table, name: str, what: str, option: str, needed: bool) -> str | None:
    if name in table.columns:
        return name
    if not needed:
        return None
    similar = next((column for column in table.columns if column.strip().casefold() == name.casefold()), None)
    near = f" Did you mean '{similar}'?" if similar else suggestion(name, table.columns)
    raise UserError(
        f"{table.source} has no column '{name}'.{near} Its columns are {named(table.columns, 20)}: "
        f"name the one with the {what} in {option}."
    )


def _image_column(table: Table, name: str | None) -> str | None:
    if name is not None:
        return _column(table, name, "images", "--data.path_column", needed=True)
    return next((column for column in IMAGE_COLUMNS if column in table.columns), None)


def _text_column(table: Table, name: str | None, image: str | None) -> str | None:
    """Return the column with texts: the one that is named, or `text` where there are no images."""
    if name is not None:
        return _column(table, name, "texts", "--data.text_column", needed=True)
    return TEXT_COLUMN if image is None and TEXT_COLUMN in table.columns else None


def _texts(table: Table, name: str) -> list[str]:
    if name in table.encoded:
        raise UserError(f"Column '{name}' of {table.source} holds bytes: write text or numbers in it.")
    return column_text(table.frame[name]).tolist()


def _images(table: Table, name: str, base: Path) -> tuple[EncodedImages, list[str] | None]:
    """Return the images of a column, and what their user calls them: paths as written."""
    if name not in table.encoded:
        written = _texts(table, name)
        return EncodedImages([os.path.join(base, path) if path else "" for path in written]), written
    column = table.encoded[name]
    rows = np.arange(len(table.frame))
    return EncodedImages(Fetched(lambda row: column.image(row, str(base)), rows)), column.written()


def _features(
    table: Table, others: list[str], chosen: list[str] | None, known: set[str | None], notes: list[str]
) -> Features:
    """Return the columns to learn from: those chosen, or all others; never those `known` to be something else."""
    if chosen is not None:
        expanded: list[str] = []
        for name in chosen:
            lists = [column for column in table.columns if column.startswith(f"{name}[")]
            expanded += [name] if name in table.columns or not lists else lists
        for name in expanded:
            _column(table, name, "features", "--data.features", needed=True)
            if name in known:
                raise UserError(
                    f"--data.features names '{name}', which says what the label is or which rows are trusted or for "
                    "the test: leave it out, since nothing may be learned from that."
                )
        others = list(dict.fromkeys(expanded))
    else:
        index = [name for name in others if name in _INDEX_NAMES and row_numbers(numbers_of(table.frame[name]))]
        others = [name for name in others if name not in index]
        if index:
            notes.append(f"Not used, since it only numbers the rows: column '{index[0]}'.")
    encoded = [name for name in others if name in table.encoded]
    if encoded:
        raise UserError(
            f"Column '{encoded[0]}' of {table.source} holds bytes: write --data.path_column {encoded[0]} if they are "
            "images, or name the columns to learn from in --data.features."
        )
    if not others:
        raise UserError(
            f"{table.source} has nothing to learn from: add a column path or image with the images, text with the "
            "texts, or columns of features."
        )
    return Features(table.frame[others])


def _parts(table: Table) -> Array:
    """Return the part of each row from the columns trusted and split."""
    count = len(table.frame)
    parts = np.full(count, NOISY)
    if "split" in table.columns:
        splits = pd.Series(_texts(table, "split")).str.strip().str.lower()
        unknown = sorted({split for split in splits if split and split not in SPLITS})
        if unknown:
            raise UserError(
                f"The column split of {table.source} has {named(unknown)}: write {', '.join(SPLITS)}, or nothing."
            )
        parts = np.array([SPLITS.get(split, NOISY) for split in splits])
    if "trusted" in table.columns:
        marks = pd.Series(_texts(table, "trusted")).str.strip().str.lower()
        unknown = sorted({mark for mark in marks if mark not in _TRUE + _FALSE})
        if unknown:
            raise UserError(
                f"The column trusted of {table.source} has {named(unknown)}: write true or false, 1 or 0, yes or no."
            )
        trusted = marks.isin(_TRUE).to_numpy()
        both = np.flatnonzero(trusted & (parts == TEST))
        if len(both):
            raise UserError(
                f"{table.source} marks {counted(len(both), 'row')} as trusted and as test, row {both[0]} first: what "
                "is learned from cannot be tested on, so take one of the marks away."
            )
        parts = np.where(trusted, TRUSTED, parts)
    return parts
