"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from karat.errors import UserError

try:
    import fcntl
except ImportError:  # not a Unix: folders are not locked there
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder (made if missing); its file then takes the path's place.

    A reader, and a run that was killed, finds the old file or the new one, never half of one.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "new" / "notes.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text(), len(list(target.parent.iterdir()))
    ('whole', 1)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.touch()
    mode = temporary.stat().st_mode
    try:
        yield temporary
        temporary.chmod(mode)  # safetensors makes its files private, whatever the umask says
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder (made if missing) that this one writes to.

    A killed process keeps nobody out. A new folder is removed again where the body fails before it wrote anything.
    """
    existed = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    with open(path, "w") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"Another process is working on {folder}: wait until it is done, or stop it.") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            if not existed and not any(folder.iterdir()):
                folder.rmdir()
