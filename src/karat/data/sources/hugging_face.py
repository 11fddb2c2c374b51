"""Datasets that the library `datasets` of Hugging Face saved with `save_to_disk`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from karat.data.columns import expand_lists
from karat.data.decoding import Encoded
from karat.data.settings import DataSettings
from karat.data.sources.parquet_files import image_in, own_paths
from karat.data.sources.rows import NOISY, SPLITS, Rows, join
from karat.data.sources.table_files import Table
from karat.data.sources.tables import rows_of_table
from karat.errors import UserError


def is_hugging_face(folder: Path) -> bool:
    """Return whether `save_to_disk` made this folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def read_hugging_face(data: DataSettings, part: int | None = None, labelled: bool = True) -> Rows:
    """Read the rows of all splits; images stay in their files. `part` is that of all rows where it is given."""
    root = Path(data.name)
    rows = []
    for split, table in hugging_face_tables(root).items():
        if part is None and split is not None and split.lower() not in SPLITS:
            raise UserError(f"{root} has a split '{split}': save it with the splits {', '.join(SPLITS)}.")
        # A split of its own says more than a column: only train rows may be marked as trusted by one.
        own = None if split is None else SPLITS.get(split.lower(), NOISY)
        wanted = part if part is not None else own or None
        rows.append(rows_of_table(table, _image_column(table, data), root, wanted, labelled))
    return join(sorted(rows, key=lambda found: int(found.parts.min())))


def hugging_face_tables(root: Path) -> dict[str | None, Table]:
    """Return the splits of a saved dataset, or its one table under None."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{root} is a Hugging Face dataset: install its library with pip install karat[huggingface]."
        ) from error
    try:
        loaded = datasets.load_from_disk(str(root))
    except (OSError, ValueError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(f"{root} is not a readable Hugging Face dataset ({error}): save it again.") from error
    if isinstance(loaded, datasets.DatasetDict):
        return {str(split): _table(part, f"{root} ({split})") for split, part in loaded.items()}
    return {None: _table(loaded, str(root))}


def _table(part: Any, source: str) -> Table:
    """Return a split as a table: images encoded and fetched one by one, class numbers as the names of the classes."""
    from datasets import ClassLabel, Image, Value

    encoded: dict[str, SavedImages] = {}
    labels = {}
    for name, feature in part.features.items():
        if isinstance(feature, Image):
            encoded[name] = SavedImages(part.select_columns([name]).cast_column(name, Image(decode=False)), name)
        elif isinstance(feature, ClassLabel):
            labels[name] = feature
        elif isinstance(feature, Value) and feature.dtype in ("binary", "large_binary"):
            encoded[name] = SavedImages(part.select_columns([name]), name)
    frame = part.remove_columns(list(encoded)).with_format("pandas")[:]
    for name, feature in labels.items():
        numbers = frame[name]
        names = dict(enumerate(feature.names))
        frame[name] = [names.get(number, "") if number == number else "" for number in numbers]  # -1: no label
    if not len(frame.columns):
        frame = frame.reindex(range(len(part)))
    classes = {name: tuple(feature.names) for name, feature in labels.items()}
    return Table(source, expand_lists(frame, source), encoded, classes)


class SavedImages:
    """A column of images of a saved dataset, which the library maps into memory."""

    def __init__(self, part: Any, column: str) -> None:
        self._part, self._column = part, column

    def image(self, row: int, folder: str) -> Encoded:
        """Return the image of a row, or the path of its file."""
        return image_in(self._part[row][self._column], folder)

    def written(self) -> list[str] | None:
        """Return the paths beside the images where each has one of its own."""

        def path(row: int) -> str | None:
            cell = self._part[row][self._column]
            return cell.get("path") if isinstance(cell, dict) else None

        return own_paths([path(row) for row in range(len(self._part))]) if len(self._part) and path(0) else None


def _image_column(table: Table, data: DataSettings) -> DataSettings:
    """Take the one column of images, whatever its name, where the settings name none."""
    if data.path_column is None and data.features is None and len(table.encoded) == 1:
        return replace(data, path_column=next(iter(table.encoded)))
    return data
