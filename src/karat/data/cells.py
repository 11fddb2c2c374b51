"""The user's own cells, for people to look at: never what was made of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from karat.data.columns import cell_text
from karat.data.readers import Array


@dataclass(frozen=True, eq=False)
class Cells:
    """What the user wrote: a frame or an array of vectors as it came, and the place of each of its rows in the data.

    The places are in ascending order. `are_texts`: the one column holds texts to read.

    >>> cells = Cells(pd.DataFrame({"code": ["007", "1e5"], "size": [0.1, None]}), np.array([3, 8]))
    >>> cells.names, cells.text([8, 3])
    (['code', 'size'], [['1e5', ''], ['007', '0.1']])
    """

    values: pd.DataFrame | Array
    places: Array
    are_texts: bool = False

    @property
    def names(self) -> list[str]:
        """Return the names of the columns; the columns of an array are numbered."""
        if isinstance(self.values, pd.DataFrame):
            return [str(name) for name in self.values.columns]
        return [str(number) for number in range(self.values.shape[1])]

    def text(self, places: Sequence[int], columns: int | None = None) -> list[list[str]]:
        """Return the cells of the rows at these places of the data as text, of the first columns where so many do."""
        rows = np.searchsorted(self.places, places)
        if isinstance(self.values, pd.DataFrame):
            # Column by column: a row of a frame would be brought to one type, and integers become floats.
            texts = [[cell_text(cell) for cell in part.array] for _, part in self.values.iloc[rows, :columns].items()]
            return [list(row) for row in zip(*texts, strict=True)]
        return [[cell_text(cell) for cell in row] for row in self.values[rows, :columns]]
