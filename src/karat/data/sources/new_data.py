"""New data for a trained model, read as its training data were."""

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from karat.data.blocks import KeptBlocks
from karat.data.decoding import IMAGE_ENDINGS, printable
from karat.data.examples import Skipped
from karat.data.images import Inputs, take
from karat.data.modality import VECTORS
from karat.data.schema import Schema
from karat.data.settings import DataSettings
from karat.data.sources.content import Texts
from karat.data.sources.folders import TEXT_FILE_ENDINGS, class_folders, file_content, files_in, is_split
from karat.data.sources.hugging_face import is_hugging_face, read_hugging_face
from karat.data.sources.npz import read_new_arrays
from karat.data.sources.problems import Problems, counted
from karat.data.sources.rows import SPLITS, TEST, Rows, join
from karat.data.sources.shards import is_shards, rows_of_shards
from karat.data.sources.table_files import TABLE_ENDINGS, Table, is_table, read_table
from karat.data.sources.tables import IMAGE_COLUMNS, rows_of_table
from karat.errors import UserError, named

logger = logging.getLogger("karat")


class NewData(NamedTuple):
    """Inputs for the model, what the user calls each row, and the numbers of the labels where these were asked for."""

    inputs: Inputs
    names: tuple[str, ...]
    labels: Tensor | None
    skipped: tuple[Skipped, ...] = ()


def read_new_data(
    schema: Schema,
    data: str | Path,
    classes: Sequence[str] | None = None,
    *,
    path: Path | None = None,
    on_bad_image: str = "error",
) -> NewData:
    """Read rows to predict: a table, a folder of images (flat or not), an image, a Hugging Face dataset or an .npz.

    With the classes of a model they are rows to measure it on: each needs a label that it knows, and where the data
    have a test part, only that is read. `path` is the folder that paths in a table start from (None: the table's own).
    """
    labelled = classes is not None
    rows = _rows(schema, str(data), path, labelled)
    for note in rows.notes:
        logger.info(note)
    if labelled and (rows.parts == TEST).any() and not (rows.parts == TEST).all():
        rows = rows.subset(np.flatnonzero(rows.parts == TEST))
        logger.info("Only the test part of %s is read: %s.", data, counted(len(rows), "row"))
    if (schema.encoder is None) == isinstance(rows.content, Texts):
        here, there = ("texts", "none") if isinstance(rows.content, Texts) else ("no texts", "them")
        raise UserError(
            f"{data} has {here}, and the model was trained on {there}: give data as the training data were."
        )
    looked = rows.content.look(schema)
    skipped = (*rows.bad, *(Skipped(rows.name(row), reason) for row, reason in looked.unreadable.items()))
    if skipped and on_bad_image != "skip":
        Problems(str(data), "file" if rows.bad else rows.content.noun, skipped).stop()
    inputs = looked.inputs()
    if looked.unreadable:
        kept = np.setdiff1d(np.arange(len(rows)), list(looked.unreadable))
        rows, inputs = rows.subset(kept), take(inputs, torch.from_numpy(kept))
    names = tuple(rows.names or (str(place) for place in rows.places))
    return NewData(inputs, names, None if classes is None else _labels(str(data), rows, classes), skipped)


def _labels(data: str, rows: Rows, classes: Sequence[str]) -> Tensor:
    """Return the numbers of the labels, all of which must be those of the model."""
    numbers = {name: number for number, name in enumerate(classes)}
    unknown = sorted({label for label in rows.labels if label not in numbers})
    if unknown:
        quoted = [f"'{label}'" for label in unknown]
        raise UserError(
            f"{data} has labels that the model does not know ({named(quoted)}): write those of its training "
            f"data ({named(classes)}), or leave these rows out."
        )
    return torch.tensor([numbers[label] for label in rows.labels], dtype=torch.int64)


def _rows(schema: Schema, data: str, path: Path | None, labelled: bool) -> Rows:
    """List the rows of a file or folder whose kind must be that of the schema."""
    place = Path(data)
    settings = DataSettings(data, path, label_column=schema.label_column, id_column=schema.id_column)
    if is_shards(data) and not is_hugging_face(place):

        def settings_of(table: Table) -> DataSettings:
            return _columns(schema, replace(settings, name=table.source), table.columns)

        return rows_of_shards(settings, KeptBlocks(), None if labelled else TEST, labelled, settings_of)
    if data.endswith(".npz"):
        return read_new_arrays(place, labelled)
    if is_table(data):
        table = read_table(place)
        settings = _columns(schema, settings, table.columns)
        if labelled and settings.label_column not in table.columns:
            raise UserError(
                f"{data} has no column '{settings.label_column}', where the labels of the training data stood: add it, "
                "or use karat predict, which needs none."
            )
        return rows_of_table(table, settings, place.parent, None if labelled else TEST, labelled)
    if place.is_dir() and is_hugging_face(place):
        if schema.encoder is not None:
            settings = replace(settings, text_column=schema.text_column)
        elif schema.modality is VECTORS:
            settings = replace(settings, features=[column.name for column in schema.columns])
        return read_hugging_face(settings, None if labelled else TEST, labelled)
    if not place.exists():
        raise UserError(f"There is no file or folder {data}: check the path.")
    endings = IMAGE_ENDINGS if schema.encoder is None else TEXT_FILE_ENDINGS
    if schema.modality is VECTORS:
        raise UserError(f"The model was trained on a table, and {data} is none: give a table with the same columns.")
    if place.is_dir():
        return _folder(place, labelled, endings)
    if labelled or place.suffix.lower() not in endings:
        what, one = ("images", "an image") if endings is IMAGE_ENDINGS else ("texts", "a text file")
        raise UserError(
            f"{data} is no data for this model: give a folder of {what}, a table with them "
            f"({', '.join(TABLE_ENDINGS)}), a Hugging Face dataset{'' if labelled else f', {one}'} or an .npz file."
        )
    return Rows(data, [""], np.array([TEST]), np.array([0]), file_content([data], endings), [printable(data)])


def _columns(schema: Schema, settings: DataSettings, columns: Sequence[str]) -> DataSettings:
    """Name the columns to read: those of the training data, or for images one with the usual name."""
    if schema.encoder is not None:
        if schema.text_column not in columns:
            raise UserError(
                f"{settings.name} has no column '{schema.text_column}', where the texts of the training data stood. "
                f"Its columns are {named(list(columns))}: give the one with the texts that name."
            )
        settings = replace(settings, text_column=schema.text_column)
    elif schema.modality is VECTORS:
        names = [column.name for column in schema.columns]
        missing = [name for name in names if name not in columns]
        if missing:
            raise UserError(
                f"{settings.name} has no column {named([repr(name) for name in missing])}, which the model was trained "
                f"on. Its columns are {named(list(columns))}: give a table with the columns of the training data."
            )
        settings = replace(settings, features=names)
    elif schema.path_column in columns:
        settings = replace(settings, path_column=schema.path_column)
    elif not any(name in columns for name in IMAGE_COLUMNS):
        raise UserError(
            f"{settings.name} has no column '{schema.path_column or IMAGE_COLUMNS[0]}', where the images of the "
            f"training data stood. Its columns are {named(list(columns))}: give the one with the images that name."
        )
    # An id column of another name than the default is needed for training, not here.
    return settings if schema.id_column in columns else replace(settings, id_column="id")


def _folder(root: Path, labelled: bool, endings: Collection[str]) -> Rows:
    if not labelled:
        others: Counter[str] = Counter()
        paths = files_in(root, endings, others)
        if not paths:
            raise UserError(f"{root} has no {'texts' if endings is TEXT_FILE_ENDINGS else 'images'}: check the path.")
        names = [printable(Path(image).relative_to(root)) for image in paths]
        count = len(paths)
        return Rows(
            str(root), [""] * count, np.full(count, TEST), np.arange(count), file_content(paths, endings), names
        )
    if not is_split(root):
        return class_folders(root, TEST)
    parts = [
        class_folders(folder, SPLITS[folder.name.lower()], prefix=f"{folder.name}/")
        for folder in sorted(root.iterdir())
        if folder.is_dir() and folder.name.lower() in SPLITS
    ]
    return join(parts)
