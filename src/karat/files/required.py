"""Files that must be there."""

from pathlib import Path

from karat.errors import UserError


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
