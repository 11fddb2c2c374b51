"""Files of this machine, or at an address that fsspec knows, such as s3://bucket/data: list, open and read parts."""

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from karat.errors import UserError, unreadable

_ADDRESS = re.compile("[a-z][a-z0-9+.-]*(://|::)")
_HERE = "file://"


@dataclass(frozen=True)
class PlacedFile:
    """A file, its size in bytes, and what reaches it: None is this machine, everything else a file system of fsspec.

    `name` tells it from the other files that were listed with it.
    """

    name: str
    path: str
    size: int
    system: Any = None

    @property
    def is_far(self) -> bool:
        """Return whether each reading takes a message to somewhere."""
        return self.system is not None

    @property
    def folder(self) -> str:
        """Return the folder that the file is in."""
        return os.path.dirname(self.path)

    def opened(self) -> IO[bytes]:
        """Open the file; raise an OSError where that fails."""
        if self.system is None:
            return Path(self.path).open("rb")
        with _asked():
            opened: IO[bytes] = self.system.open(self.path, "rb")
            return opened

    def part(self, start: int, size: int) -> bytes:
        """Return so many bytes from a place on; raise an OSError where the file does not have them."""
        if self.system is None:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(start)
                found = file.read(size)
        else:
            with _asked():
                found = self.system.cat_file(self.path, start=start, end=start + size)
        if len(found) != size:
            raise OSError(f"{self.name} ends after {start + len(found)} bytes and has changed since it was listed")
        return found


def is_address(name: str) -> bool:
    """Return whether a name is an address, not a path of this machine.

    >>> is_address("s3://bucket/data"), is_address("file:///data"), is_address("data/train.csv")
    (True, True, False)
    """
    return _ADDRESS.match(name) is not None


def is_pattern(name: str) -> bool:
    """Return whether a name stands for many files, as `train-*.tar` does, and is no file itself."""
    return glob.has_magic(name) and not os.path.exists(name)


def list_files(name: str, endings: tuple[str, ...]) -> list[PlacedFile]:
    """Return the files in a folder or those of a pattern, or the one file, that have one of the endings; sorted."""
    name = name.removeprefix(_HERE)
    system, found = _far_files(name) if is_address(name) else (None, _files_here(name))
    sizes = {path: size for path, size in found.items() if _counts(os.path.basename(path), endings)}
    above = os.path.commonpath([os.path.dirname(path) for path in sizes]) if sizes else ""
    return [
        PlacedFile(os.path.relpath(path, above) if above else path, path, sizes[path], system) for path in sorted(sizes)
    ]


def _counts(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().endswith(endings) and not name.startswith(".")


def _files_here(name: str) -> dict[str, int]:
    try:
        if os.path.isdir(name):
            paths = [entry.path for entry in os.scandir(name)]
        else:
            paths = [name] if os.path.exists(name) else glob.glob(name, recursive=True)
        return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}
    except OSError as error:
        raise unreadable(name, error) from error


def _far_files(address: str) -> tuple[Any, dict[str, int]]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UserError(
            f"{address} is an address, which fsspec reads: install it with pip install karat[remote]."
        ) from error
    try:
        with _asked():
            system, path = url_to_fs(address)
            if glob.has_magic(path):
                found = list(system.glob(path, detail=True).values())
            else:
                place = system.info(path)
                found = [place] if place["type"] == "file" else system.ls(path, detail=True)
    except OSError as error:
        raise UserError(f"{address} cannot be read ({error}): check the address, and your access to it.") from error
    return system, {one["name"]: one["size"] or 0 for one in found if one["type"] == "file"}


@contextmanager
def _asked() -> Iterator[None]:
    """Turn what a file system of fsspec raises, which may be anything, into an OSError of one line."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise OSError(reason or type(error).__name__) from error
