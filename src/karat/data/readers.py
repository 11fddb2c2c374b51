"""Read .npz files and matrices into numpy arrays. Nothing is unpickled."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.errors import UserError, choose
from karat.files.memory_need import refuse_large_archive
from karat.files.required import require

Array = NDArray[Any]

UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)  # what a damaged file raises


def read_npz(path: Path) -> dict[str, Array]:
    """Read every array of an .npz file."""
    require(path, "check the path, or write the file with numpy.savez")
    try:
        refuse_large_archive(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except UserError:
        raise
    except MemoryError as error:
        raise UserError(f"{path} says that its arrays are larger than the memory ({error}): check the file.") from error
    # AttributeError, TypeError: an .npy file under the wrong name loads as a bare array.
    except (*UNREADABLE, AttributeError, TypeError) as error:
        raise UserError(
            f"{path} is not an .npz file of plain arrays ({error}): write it with numpy.savez, "
            "and without Python objects in it."
        ) from error


def read_matrix(path: Path) -> Array:
    """Read a matrix of numbers from an .npy or .csv file (comma-separated, no header)."""
    reader = choose("matrix file ending", path.suffix, {".npy": _load_npy, ".csv": _load_csv})
    require(path, "check the path")
    try:
        return np.asarray(reader(path), dtype=np.float64)
    except UNREADABLE as error:
        raise UserError(f"{path} holds no matrix of numbers ({error}): write one row per true class.") from error


def _load_npy(path: Path) -> Array:
    return np.load(path, allow_pickle=False)


def _load_csv(path: Path) -> Array:
    if not path.read_text().strip():
        raise ValueError("the file is empty")
    return np.loadtxt(path, delimiter=",", ndmin=2)
