"""How a user's rows become inputs, as plain values: what a run must remember to read new data in the same way."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import Tensor

from karat.errors import UserError

FORMAT = "karat schema 1"


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


@dataclass(frozen=True)
class Schema:
    """What one input is and where the user's files keep its parts.

    `shape` is that of one input: (channels, height, width) of images, (inputs,) of vectors. Vectors have `columns`.
    `signed`: images in arrays of floats are in [-1, 1], not in [0, 1]. The other fields are the names of the columns
    in which tables keep labels, images (paths or encoded ones) and ids.

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

    @property
    def images(self) -> bool:
        """Return whether the inputs are images; else they are vectors."""
        return len(self.shape) == 3

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the inputs of a vector, in order; nothing for images."""
        return tuple(name for column in self.columns for name in column.inputs)

    def inputs_of(self, data: pd.DataFrame | np.ndarray) -> Tensor:
        """Return the inputs of new rows: a table with the columns of the training data, or an array of the same kind.

        >>> schema = Schema((1,), columns=(Column("age", "number", mean=40.0, scale=10.0),))
        >>> schema.inputs_of(np.array([[50.0]])).tolist(), schema.inputs_of(pd.DataFrame({"age": [30]})).tolist()
        ([[1.0]], [[-1.0]])
        """
        from karat.data.arrays import array_inputs  # both of these modules describe themselves by this one
        from karat.data.features import encode

        if isinstance(data, pd.DataFrame):
            if self.images:
                raise UserError("The model takes images, and a table of features was given: give images.")
            return encode(self.columns, data.rename(columns=str))
        return array_inputs(self, np.asarray(data))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as values that JSON can hold."""
        values = asdict(self)
        return {"format": FORMAT, **values, "shape": list(self.shape), "columns": list(values["columns"])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Schema":
        """Return the schema that `to_dict` wrote; anything else is refused."""
        try:
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {values['format']!r}")
            rest = {name: value for name, value in values.items() if name not in ("format", "shape", "columns")}
            columns = tuple(Column(**{**column, "levels": tuple(column["levels"])}) for column in values["columns"])
            return cls(shape=_integers(values["shape"]), columns=columns, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"The schema of the run is not one of Karat ({error}): use the run's own files.") from error


def _integers(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
