"""YAML files that people write by hand: plain values, not deep, and no references that unfold without end."""

from pathlib import Path
from typing import Any

import yaml

from karat.errors import UserError, unreadable

DEEPEST = 30
LARGEST = 10 * 2**20


def check_yaml(path: Path) -> str:
    """Return the text of a YAML file; refuse one that a reader would choke on: huge, deep, or with references."""
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} has more than {LARGEST // 2**20} MB: settings are a page of `name: value` lines.")
        text = path.read_text(encoding="utf-8")
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise UserError(f"{path} refers to *{event.anchor}: write the values themselves.")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise UserError(
                    f"{path} has sections in sections, more than {DEEPEST} deep: write `name: value` lines."
                )
    except OSError as error:
        raise unreadable(path, error) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not YAML ({' '.join(str(error).split())}): mend it.") from error
    return text


def read_yaml(path: Path) -> Any:
    """Return the plain values in a YAML file."""
    try:
        return yaml.safe_load(check_yaml(path))
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not YAML of plain values ({' '.join(str(error).split())}): mend it.") from error
