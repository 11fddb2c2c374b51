"""Checkpoints: nested plain values and tensors in a file that runs nothing when it is read."""

import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from karat.errors import DamagedFile, UserError, unreadable
from karat.files.atomic import replacing

FORMAT = "karat checkpoint 4"
OLDER = ("karat checkpoint 1", "karat checkpoint 2", "karat checkpoint 3")
PLAIN_TYPES = (bool, int, float, str, type(None))


def save_checkpoint(path: str | Path, state: dict[str, Any]) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers and strings to a file, all or nothing.

    Anything else is refused now: `load_checkpoint` could not read it, and would say so only when needed.
    """
    _check_plain(state, "state")
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        content, noting = {"format": FORMAT, "state": state}, _NotingFile(file)
        try:
            torch.save(content, noting)  # type: ignore[arg-type]
        except RuntimeError as error:  # torch's zip writer hides why the disk refused
            raise (noting.error or error) from error


class _NotingFile:
    """A file to write to that remembers why it could not be written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        """Write, and note an error."""
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Write what is still in memory, and note an error."""
        try:
            self._file.flush()
        except OSError as error:
            self.error = error
            raise


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote, all tensors on the CPU; a damaged or foreign file is refused."""
    refusal = DamagedFile(f"{path} is damaged or is not a Karat checkpoint; use another checkpoint or start anew.")
    try:
        # torch.load does not compare the archive's checksums: flipped bits would become wrong weights.
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise refusal
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise unreadable(path, error) from error
    except UserError:
        raise
    except Exception as error:  # unpickling a foreign file can fail in any way
        raise refusal from error
    if isinstance(content, dict) and content.get("format") in OLDER:
        raise UserError(f"An older version of Karat made {path}: finish the run with that one, or start a new run.")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise refusal
    state: dict[str, Any] = content["state"]
    return state


def _check_plain(value: object, where: str) -> None:
    # Exact types: a NumPy float is a float to isinstance, but not to torch.load(weights_only=True).
    if isinstance(value, Tensor) or type(value) in PLAIN_TYPES:
        return
    if type(value) in (dict, OrderedDict):
        for key, item in value.items():  # type: ignore[attr-defined]
            _check_plain(key, f"{where}, key {key!r}")
            _check_plain(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):  # type: ignore[arg-type]
            _check_plain(item, f"{where}[{index}]")
    else:
        raise TypeError(
            f"A checkpoint cannot hold a {type(value).__name__} ({where}); "
            "give tensors, plain numbers, strings, or dicts, lists and tuples of them."
        )
