"""Plain values in JSON files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from karat.errors import UserError, unreadable
from karat.files.atomic import write_text


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write named values, whole or not at all."""
    write_text(path, json.dumps(values, indent=2) + "\n")


def read_json(path: Path, remedy: str = "train again") -> dict[str, Any]:
    """Read named values; a damaged file is refused with what to do about it."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): {remedy}.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged (it holds no named values): {remedy}.")
    return values
