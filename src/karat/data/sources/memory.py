"""Arrays and frames that are in memory already."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import Tensor

from karat.data.columns import cell_text, expand_lists
from karat.data.examples import Dataset
from karat.data.images import image_paths
from karat.data.readers import Array
from karat.data.remedies import IN_PYTHON
from karat.data.settings import DataForNetwork
from karat.data.sources.assemble import assemble
from karat.data.sources.content import Content, EncodedImages, Features, Texts, array_content
from karat.data.sources.rows import NOISY, TEST, TRUSTED, Rows, join
from karat.data.text import are_texts
from karat.errors import UserError


def from_memory(
    inputs: Any,
    labels: Any,
    trusted: Any = None,
    *,
    test: tuple[Any, Any] | None = None,
    classes: Sequence[str] = (),
    names: Sequence[str] | None = None,
    name: str = "data",
    missing: Literal["error", "impute"] = "error",
    photographs: int | None = None,
) -> Dataset:
    """Make a dataset of vectors (N,F), images (N,H,W[,C]), a DataFrame, a list of texts or of image files, and labels.

    `trusted` says row by row which labels were verified; None: none was. `classes` are in this order, or else sorted.
    `schema.inputs_of(inputs)` of the result then transforms new inputs in the same way. `photographs` is the size that
    image files get where they differ.

    >>> dataset = from_memory(np.array([[1.0], [3.0], [1.0], [3.0]]), ["cat", "dog"] * 2, [True, True, False, False])
    >>> dataset.classes, dataset.train.inputs.flatten().tolist(), dataset.schema.inputs_of(np.array([[5.0]])).tolist()
    (('cat', 'dog'), [-1.0, 1.0, -1.0, 1.0], [[3.0]])
    """
    rows = _rows("the inputs", inputs, labels, NOISY)
    if names is not None:
        if len(names) != len(rows):
            raise UserError(f"There are {len(names)} names and {len(rows)} labels: give one name for each row.")
        rows = replace(rows, names=[str(one) for one in names])
    rows = replace(rows, class_order=tuple(map(str, classes)))
    if trusted is not None:
        rows = replace(rows, parts=np.where(_mask(trusted, len(rows)), TRUSTED, NOISY))
    if test is not None:
        rows = join([rows, _rows("the test inputs", *test, TEST)])
    data = DataForNetwork(name, missing=missing, photographs=photographs)
    return replace(assemble(replace(rows, source=name), data), name=name)


def _rows(what: str, inputs: Any, labels: Any, part: int) -> Rows:
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    content = _content(what, inputs)
    count = len(content)
    if count != len(values):
        raise UserError(f"There are {count} rows of {what} and {len(values)} labels: give one label for each row.")
    texts = [cell_text(value) for value in values]
    return Rows(what, texts, np.full(count, part), np.arange(count), content, remedies=IN_PYTHON)


def _content(what: str, inputs: Any) -> Content:
    paths = image_paths(inputs)
    if paths is not None:
        return EncodedImages([str(path) for path in paths])
    if are_texts(inputs):
        return Texts([str(text) for text in inputs])
    if isinstance(inputs, pd.DataFrame):
        return Features(expand_lists(inputs.rename(columns=str), what))
    return array_content(what, inputs.numpy() if isinstance(inputs, Tensor) else np.asarray(inputs))


def _mask(trusted: Any, count: int) -> Array:
    mask = np.asarray(trusted)
    if mask.dtype != bool or mask.shape != (count,):
        raise UserError(
            f"trusted has type {mask.dtype} and shape {mask.shape}: give one boolean for each of the {count} rows."
        )
    return mask
