"""Read the python version of CIFAR, whose files are pickles, without letting a pickle run anything.

A pickle may name any function and have it called. Here a name gets one of four stand-ins that copy bytes, or an error;
no function of numpy and none of Python is within a file's reach.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from karat.data.readers import Array
from karat.errors import UserError
from karat.files.required import require


class _Bytes:
    """Stand in for a numpy array: take its saved state, which must be that of plain unsigned bytes."""

    array: Array

    def __setstate__(self, state: Any) -> None:
        _, shape, _, fortran, content = state
        raw = content.encode("latin1") if isinstance(content, str) else content
        self.array = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


class _ByteType:
    """Stand in for numpy's type of unsigned bytes."""

    def __init__(self, kind: str, *_: Any) -> None:
        if kind not in ("u1", "|u1"):
            raise ValueError(f"an array of type {kind}")

    def __setstate__(self, state: Any) -> None:
        """Ignore the rest: a byte has no order of bytes."""


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"the encoding {encoding}")
    return text.encode("latin1")


# numpy 2 has renamed numpy.core; the files are older, copies of them may be newer.
_STAND_INS = {
    "numpy.core.multiarray._reconstruct": lambda *_: _Bytes(),
    "numpy._core.multiarray._reconstruct": lambda *_: _Bytes(),
    "numpy.ndarray": None,  # only ever an argument of _reconstruct
    "numpy.dtype": _ByteType,
    "_codecs.encode": _encode,
}


class _CifarUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        wanted = f"{module}.{name}"
        if wanted not in _STAND_INS:
            raise UserError(
                f"the file asks for {wanted}, which no CIFAR file does: do not trust it, get a fresh copy of it"
            )
        return _STAND_INS[wanted]


def read_cifar_file(path: Path, labels: str, remedy: str) -> tuple[Array, Array]:
    """Read the images of a batch file as uint8 N,3,32,32, and the labels under this key."""
    content = _read(path, remedy)
    data, numbers = content.get("data"), content.get(labels)
    if not isinstance(data, _Bytes) or not isinstance(numbers, list) or data.array.shape != (len(numbers), 3072):
        raise UserError(f"{path} does not hold data and {labels} of 32x32 images: get a fresh copy of it.")
    if not all(type(number) is int for number in numbers):
        raise UserError(f"The {labels} of {path} are not all whole numbers: get a fresh copy of it.")
    return data.array.reshape(-1, 3, 32, 32), np.array(numbers, dtype=np.int64)


def read_cifar_names(path: Path, key: str, remedy: str) -> tuple[str, ...]:
    """Read the names of the classes from a meta file."""
    names = _read(path, remedy).get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path} does not hold {key}: get a fresh copy of it.")
    return tuple(names)


def _read(path: Path, remedy: str) -> dict[Any, Any]:
    require(path, remedy)
    try:
        with path.open("rb") as file:
            content = _CifarUnpickler(file, encoding="latin1").load()
    except UserError as error:
        raise UserError(f"{path} is refused: {error}.") from None
    # A damaged pickle raises whatever its bytes happen to ask for.
    except Exception as error:
        raise UserError(f"{path} is not a file of CIFAR's python version ({error}): get a fresh copy of it.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a file of CIFAR's python version: get a fresh copy of it.")
    return content
