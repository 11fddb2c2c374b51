"""Folders that one process at a time writes to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from karat.errors import UserError
from karat.files.required import refuse_link


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder (made if missing) that this one writes to.

    A killed process keeps nobody out. A new folder is removed again where the body fails before it wrote anything.
    """
    existed = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    refuse_link(path)  # opening it would empty what it leads to
    try:
        with FileLock(path, timeout=0):
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
                if not existed and not any(folder.iterdir()):
                    folder.rmdir()
    except Timeout:
        raise UserError(f"Another process is working on {folder}: wait until it is done, or stop it.") from None
