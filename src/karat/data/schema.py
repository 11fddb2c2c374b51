"""How a user's rows become inputs, as plain values: what a run must remember to read new data in the same way."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from karat.data.arrays import check_inputs, is_signed, mean_and_scale, scale_images, standardise
from karat.data.columns import Column, encode, expand_lists
from karat.data.images import ImageFiles, Inputs, image_paths
from karat.data.modality import IMAGES, TEXTS, VECTORS, Modality, modality_of
from karat.data.readers import Array
from karat.data.text import TextEncoder, texts_of
from karat.errors import UserError

FORMAT = "karat schema 1"


@dataclass(frozen=True)
class Schema:
    """What one input is and where the user's files keep its parts.

    `shape` is that of one input: (channels, height, width) of images, (inputs,) of vectors. Vectors have `columns`, or
    the `encoder` that makes them of texts, which is kept in a file of its own.
    `signed`: images in arrays of floats are in [-1, 1], not in [0, 1]. The other fields are the names of the columns
    in which tables keep labels, images (paths or encoded ones), texts and ids.

    >>> schema = Schema((1,), columns=(Column("age", "number", mean=40.0, scale=10.0),))
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    shape: tuple[int, ...]
    columns: tuple[Column, ...] = ()
    signed: bool = False
    label_column: str = "label"
    path_column: str = "path"
    id_column: str = "id"
    text_column: str = "text"
    encoder: TextEncoder | None = None

    @property
    def modality(self) -> Modality:
        """Return what kind of thing one input is."""
        return modality_of(self.shape) if self.encoder is None else TEXTS

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the inputs of a vector, in order; nothing for images."""
        return tuple(name for column in self.columns for name in column.inputs)

    @property
    def units(self) -> tuple[Tensor, Tensor] | None:
        """Return the mean and the scale of each column of vectors; None where there are other columns than numbers.

        >>> Schema((1,), columns=(Column("age", "number", mean=40.0, scale=10.0),)).units
        (tensor([40.]), tensor([10.]))
        """
        if not self.columns or any(column.kind != "number" or len(column.inputs) != 1 for column in self.columns):
            return None
        pairs = torch.tensor([(column.mean, column.scale) for column in self.columns])
        return pairs[:, 0], pairs[:, 1]

    def inputs_of(self, data: pd.DataFrame | np.ndarray | Sequence[str] | Sequence[Path]) -> Inputs:
        """Return the inputs of new rows: a table with the columns of the training data, an array, texts, image files.

        >>> schema = Schema((1,), columns=(Column("age", "number", mean=40.0, scale=10.0),))
        >>> schema.inputs_of(np.array([[50.0]])).tolist(), schema.inputs_of(pd.DataFrame({"age": [30]})).tolist()
        ([[1.0]], [[-1.0]])
        """
        if self.encoder is not None:
            return self.encoder.encode(texts_of(data, self.text_column))
        if isinstance(data, pd.DataFrame):
            if self.modality is IMAGES:
                raise UserError("The model takes images, and a table of features was given: give images.")
            return encode(self.columns, expand_lists(data.rename(columns=str), "the table"))
        paths = image_paths(data) if self.modality is IMAGES else None
        if paths is not None:
            channels, height, width = self.shape
            return ImageFiles(paths, (height, width), channels=channels)
        return _array_inputs(self, np.asarray(data))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as values that JSON can hold."""
        values = asdict(replace(self, encoder=None))
        encoder = None if self.encoder is None else self.encoder.describe()
        lists = {"shape": list(self.shape), "columns": list(values["columns"])}
        return {"format": FORMAT, **values, **lists, "encoder": encoder}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], encoder: TextEncoder | None = None) -> "Schema":
        """Return the schema that `to_dict` wrote, with the encoder that it describes; anything else is refused."""
        try:
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {values['format']!r}")
            apart = ("format", "shape", "columns", "encoder")
            rest = {name: value for name, value in values.items() if name not in apart}
            columns = tuple(Column(**{**column, "levels": tuple(column["levels"])}) for column in values["columns"])
            if not all(isinstance(value, bool if name == "signed" else str) for name, value in rest.items()):
                raise TypeError("a column has no name")
            return cls(shape=_integers(values["shape"]), columns=columns, encoder=encoder, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The schema of the run is not one of Karat ({error}): use the run's own files.") from error


def array_schema(train: Array, test: Array | None = None) -> Schema:
    """Learn how arrays become inputs: vectors by mean and deviation of the train part, images by the range of both.

    >>> array_schema(np.array([[0.0], [4.0]])).inputs_of(np.array([[6.0]])).tolist()
    [[2.0]]
    """
    if train.ndim == 2:
        statistics = zip(*(values.tolist() for values in mean_and_scale(train)), strict=True)
        columns = (Column(str(place), "number", mean, scale) for place, (mean, scale) in enumerate(statistics))
        return Schema(tuple(train.shape[1:]), tuple(columns))
    signed = [is_signed(part) for part in (train, test) if part is not None]
    return Schema(tuple(scale_images(train[:1], any(signed)).shape[1:]), signed=any(signed))


def _array_inputs(schema: Schema, inputs: Array) -> Tensor:
    check_inputs("The array of inputs", inputs)
    if schema.modality is VECTORS:
        columns = schema.columns
        if any(len(column.inputs) != 1 or column.kind != "number" for column in columns):
            raise UserError("The model was trained on a table with named columns: give a table with these columns.")
        if inputs.ndim != 2 or inputs.shape[1] != len(columns):
            raise UserError(f"The array of inputs has shape {inputs.shape}: give vectors (N,{len(columns)}).")
        mean, scale = (np.array([getattr(column, name) for column in columns]) for name in ("mean", "scale"))
        return standardise(inputs, mean, scale)
    channels, height, width = schema.shape
    if inputs.ndim == 2:
        raise UserError(f"The array of inputs has shape {inputs.shape}: give images of {height}x{width} pixels.")
    images = scale_images(inputs, is_signed(inputs) or schema.signed)
    if tuple(images.shape[1:]) != schema.shape:
        raise UserError(
            f"The images in the array have {images.shape[1]} channels and {images.shape[2]}x{images.shape[3]} pixels: "
            f"give images of {channels} channels and {height}x{width} pixels."
        )
    return images


def _integers(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
