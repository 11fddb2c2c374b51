"""A user's own arrays in an .npz file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from karat.data.readers import Array, read_npz
from karat.data.settings import DataSettings
from karat.data.sources.content import array_content
from karat.data.sources.rows import NOISY, TEST, TRUSTED, Rows, join
from karat.errors import UserError


def read_arrays(data: DataSettings) -> Rows:
    """Read the arrays train_inputs and train_labels and, if there, test_inputs and test_labels, trusted, ids."""
    file = Path(data.name)
    arrays = read_npz(file)
    prefixes = ["train_", "test_"] if {"test_inputs", "test_labels"} & arrays.keys() else ["train_"]
    needed = [f"{prefix}{name}" for prefix in prefixes for name in ("inputs", "labels")]
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise UserError(f"{file} has no {' and no '.join(missing)}: save the arrays {', '.join(needed)} in it.")
    train, *test = (_rows(file, arrays, prefix, part) for prefix, part in zip(prefixes, (NOISY, TEST), strict=False))
    names = _ids(file, arrays.get("ids"), len(train), unique=True)
    train = replace(train, names=names)
    if "trusted" in arrays:
        train = replace(train, parts=np.where(_mask(file, arrays["trusted"], len(train)), TRUSTED, NOISY))
    return replace(join([train, *test]), source=str(file))


def read_new_arrays(file: Path, labelled: bool) -> Rows:
    """Read the arrays inputs, labels and ids of new data, or those of a test part, which has no ids."""
    arrays = read_npz(file)
    prefix = "" if "inputs" in arrays else "test_"
    if f"{prefix}inputs" not in arrays or (labelled and f"{prefix}labels" not in arrays):
        raise UserError(f"{file} has no array inputs{' and labels' * labelled}: save them in it.")
    rows = _rows(file, arrays, prefix, TEST, labelled)
    return rows if prefix else replace(rows, names=_ids(file, arrays.get("ids"), len(rows)))  # else those of train rows


def _rows(file: Path, arrays: Mapping[str, Array], prefix: str, part: int, labelled: bool = True) -> Rows:
    inputs = arrays[f"{prefix}inputs"]
    content, count = array_content(f"{prefix}inputs", inputs), len(inputs)
    texts = [""] * count
    if labelled:
        labels = arrays[f"{prefix}labels"]
        if labels.ndim != 1 or labels.dtype.kind not in "iuU":
            raise UserError(
                f"{prefix}labels has shape {labels.shape} and type {labels.dtype}: give one integer or string per "
                "example."
            )
        if len(labels) != count:
            raise UserError(
                f"{file} has {count} {prefix}inputs and {len(labels)} {prefix}labels: give one label per input."
            )
        texts = [str(label) for label in labels.tolist()]
    return Rows(f"{prefix}inputs", texts, np.full(count, part), np.arange(count), content)


def _ids(file: Path, ids: Array | None, count: int, unique: bool = False) -> list[str] | None:
    if ids is None:
        return None
    if ids.shape != (count,) or ids.dtype.kind not in "iuU" or (unique and len(np.unique(ids)) != count):
        raise UserError(
            f"The array ids in {file} has type {ids.dtype} and shape {ids.shape}: give one integer or text for each of "
            f"the {count} rows{', and none twice' * unique}."
        )
    return [str(name) for name in ids.tolist()]


def _mask(file: Path, trusted: Array, count: int) -> Array:
    if trusted.dtype != bool or trusted.shape != (count,):
        raise UserError(
            f"The array trusted in {file} has type {trusted.dtype} and shape {trusted.shape}: "
            f"give one boolean for each of the {count} train examples."
        )
    return trusted
