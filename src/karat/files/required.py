"""Files that must be there, and hold what they should."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from karat.errors import DamagedFile, UserError

_MISFITS = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, ArithmeticError, AssertionError)


def refuse_link(path: Path) -> None:
    """Raise a UserError where a path that is to be written to is a symbolic link: it may lead anywhere."""
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link, which Karat never makes: remove it, or do not trust the folder.")


def require(path: Path, remedy: str) -> None:
    """Raise a UserError with the remedy where there is no such file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file: {remedy}.")
    if not path.is_file():
        raise UserError(f"There is no file {path}: {remedy}.")


@contextmanager
def fitting(path: Path, remedy: str = "restore it, or train again") -> Iterator[None]:
    """Say in a sentence that a file which can be read does not hold what it should.

    >>> with fitting(Path("sample.json")):
    ...     {}["rows"]
    Traceback (most recent call last):
    karat.errors.DamagedFile: sample.json is damaged (KeyError: 'rows'): restore it, or train again.
    """
    try:
        yield
    except UserError:
        raise
    except _MISFITS as error:
        reason = " ".join(str(error).split())[:200]
        raise DamagedFile(f"{path} is damaged ({type(error).__name__}: {reason}): {remedy}.") from error
