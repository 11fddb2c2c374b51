"""Arrays and frames that are in memory already."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from karat.data.examples import Dataset, Examples, from_arrays
from karat.data.features import cell_text, encode, fit_columns
from karat.data.readers import Array
from karat.data.schema import Schema
from karat.data.sources.checks import sorted_classes
from karat.data.sources.problems import Problems, named
from karat.data.sources.table_files import expand_lists
from karat.errors import UserError


def from_memory(
    inputs: Any,
    labels: Any,
    trusted: Any = None,
    *,
    test: tuple[Any, Any] | None = None,
    names: Sequence[str] | None = None,
    name: str = "data",
    missing: str = "error",
) -> Dataset:
    """Make a dataset of vectors (N,F), images (N,H,W[,C]) or a DataFrame of features, and of labels of any kind.

    `trusted` says row by row which labels were verified; None leaves the choice to `make_task`, which draws some of
    each class. `schema.inputs_of(inputs)` of the result then transforms new inputs in the same way.

    >>> dataset = from_memory(np.array([[1.0], [3.0]]), ["cat", "dog"], [True, False])
    >>> dataset.classes, dataset.train.inputs.tolist(), dataset.schema.inputs_of(np.array([[5.0]])).tolist()
    (('cat', 'dog'), [[-1.0], [1.0]], [[3.0]])
    """
    texts = _labels(labels, "labels")
    classes = sorted_classes(texts)
    if len(classes) < 2:
        raise UserError(f"The labels have {len(classes)} class{'es' * (len(classes) != 1)}: give at least 2.")
    test_texts = [] if test is None else _labels(test[1], "test labels")
    unknown = sorted(set(test_texts).difference(classes))
    if unknown:
        raise UserError(f"Only test rows have the label {named(unknown)}: add such examples to the train rows.")
    numbers = {label: number for number, label in enumerate(classes)}
    train_labels = np.array([numbers[text] for text in texts], dtype=np.int64)
    test_labels = np.array([numbers[text] for text in test_texts], dtype=np.int64)
    if isinstance(inputs, pd.DataFrame):
        dataset = _from_frame(inputs, train_labels, None if test is None else test[0], test_labels, name, missing)
        dataset = replace(dataset, classes=classes)
    else:
        part = None if test is None else (_array(test[0]), test_labels)
        dataset = from_arrays(name, (_array(inputs), train_labels), part, classes, flip=False)
    if names is not None and len(names) != len(texts):
        raise UserError(f"There are {len(names)} names and {len(texts)} labels: give one name for each row.")
    return replace(
        dataset,
        curated=False,
        trusted=None if trusted is None else _mask(trusted, len(texts)),
        names=None if names is None else tuple(map(str, names)),
    )


def _from_frame(frame: pd.DataFrame, labels: Array, test: Any, test_labels: Array, name: str, missing: str) -> Dataset:
    frames = [expand_lists(part.rename(columns=str), name) for part in ([frame] if test is None else [frame, test])]
    for part, part_labels in zip(frames, (labels, test_labels), strict=False):
        if len(part) != len(part_labels):
            raise UserError(f"There are {len(part)} rows and {len(part_labels)} labels: give one label for each row.")
    problems = Problems(name)
    columns = fit_columns(frames[0], missing, problems.errors, problems.notes)
    problems.stop()
    inputs = encode(columns, frames[0])
    tested = inputs[:0] if test is None else encode(columns, frames[1])
    return Dataset(
        name,
        Examples(inputs, torch.from_numpy(labels)),
        Examples(tested, torch.from_numpy(test_labels)),
        (),
        flip=False,
        rows=torch.arange(len(labels)),
        schema=Schema(tuple(inputs.shape[1:]), columns),
        notes=tuple(problems.notes),
    )


def _labels(labels: Any, what: str) -> list[str]:
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    texts = [cell_text(value) for value in values]
    empty = [place for place, text in enumerate(texts) if not text.strip()]
    if empty:
        raise UserError(
            f"{len(empty)} of the {what} are empty (rows {named(empty)}): write one, or leave the rows out."
        )
    return texts


def _array(inputs: Any) -> Array:
    return inputs.numpy() if isinstance(inputs, Tensor) else np.asarray(inputs)


def _mask(trusted: Any, count: int) -> Tensor:
    mask = np.asarray(trusted)
    if mask.dtype != bool or mask.shape != (count,):
        raise UserError(
            f"trusted has type {mask.dtype} and shape {mask.shape}: give one boolean for each of the {count} rows."
        )
    return torch.from_numpy(mask.copy())
