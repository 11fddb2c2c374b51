"""Files that must be there."""

from pathlib import Path

from karat.errors import UserError


def require(path: Path, remedy: str) -> None:
    """Raise a UserError with the remedy where there is no such file."""
    if path.is_dir():
        raise UserError(f"{path} is a folder, not a file: {remedy}.")
    if not path.is_file():
        raise UserError(f"There is no file {path}: {remedy}.")
