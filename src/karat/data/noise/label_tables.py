"""Read tables of labels into named columns: .csv, .npz, and .pt as far as no foreign code is run."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from karat.data.readers import Array, read_npz
from karat.errors import UserError, choose
from karat.files.required import require
from karat.files.text_tables import read_text_table

_PLAIN_ARRAYS = ("<U0", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "float64", "float32")


def read_label_table(path: Path) -> dict[str, Array]:
    """Read the columns of a table by the ending of its file; a .csv column is integers if all of its cells are."""
    endings = {".npz": read_npz, ".csv": _read_csv, ".pt": _read_pt, ".npy": _refuse_npy}
    return choose("label file ending", path.suffix, endings)(path)


def _read_csv(path: Path) -> dict[str, Array]:
    frame = read_text_table(path, "write the columns index, given_label and, where known, true_label")
    return {str(name): _cells(column.tolist()) for name, column in frame.items()}


def _cells(cells: list[str]) -> Array:
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array([cell.strip() for cell in cells], dtype=np.str_)


def _read_pt(path: Path) -> dict[str, Array]:
    require(path, "check the path")
    try:
        with torch.serialization.safe_globals(_numpy_globals()):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError) as error:
        raise UserError(
            f"{path} holds more than tensors and arrays, or is damaged, so reading it might run foreign code: "
            "ask whoever made it for the labels as .csv or .npz."
        ) from error
    columns = {name: _plain(value) for name, value in content.items()} if isinstance(content, Mapping) else {}
    found = {str(name): column for name, column in columns.items() if column is not None}
    if not found:
        raise UserError(f"{path} holds no dict of tensors or arrays: save one with a name for each column of labels.")
    return found


def _plain(value: Any) -> Array | None:
    """Return tensors, arrays and lists as arrays; None for what is no column."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, (list, np.ndarray)):
        array = np.asarray(value)
        return array if array.dtype.kind in "iufU" else None
    return None


def _refuse_npy(path: Path) -> dict[str, Array]:
    raise UserError(
        f"{path} may hold a pickle, which can run foreign code when it is read: "
        "use the labels as .csv, .npz or, of tensors and arrays alone, .pt."
    )


def _numpy_globals() -> list[Any]:
    """Return what a pickled array of numbers names: numpy's constructor, under its old path too, and number types."""
    empty = np.empty(0)
    reconstruct = empty.__reduce__()[0]
    return [
        reconstruct,
        (reconstruct, "numpy.core.multiarray._reconstruct"),
        (reconstruct, "numpy._core.multiarray._reconstruct"),
        np.ndarray,
        np.dtype,
        *{type(np.dtype(name)) for name in _PLAIN_ARRAYS},
    ]
