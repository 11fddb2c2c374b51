"""A config from plain values, such as those of a recipe: checked as the command line checks its options."""

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from typing import Any

from jsonargparse import Namespace

from karat.errors import UserError
from karat.settings.config import Config, flat, preset
from karat.settings.parser import Parser


def make_config(values: Mapping[str, Any]) -> Config:
    """Make a config from nested or dotted values; `preset` names the settings to start from.

    >>> config = make_config({"preset": "paper", "data.name": "wine", "training": {"steps": 5}})
    >>> config.data.name, config.training.steps, config.algorithm.consistency_weight
    ('wine', 5, 20.0)
    >>> make_config({"noise.kind": "asymmetric", "noise.class_map": {9: 1}}).noise.class_map
    {9: 1}
    >>> make_config({"data.nam": "wine"})
    Traceback (most recent call last):
    karat.errors.UserError: There is no setting 'data.nam'. Did you mean 'data.name'? See: karat train --help
    """
    values = flat(dict(values))
    start = preset(values.pop("preset", "default"))
    parser = _parser()
    known = {option.removeprefix("--") for option in parser._option_names()}
    for key in values:
        if key not in known:
            parser.error(f"Key '{key}' is not expected")
    # Without the defaults: jsonargparse takes 60 ms to parse all settings, 1 ms for these; a recipe has many cells.
    return _changed(start, parser.parse_object(_nested(values), defaults=False))


@cache
def _parser() -> Parser:
    parser = Parser(prog="karat train", exit_on_error=False)
    parser.add_class_arguments(Config)
    return parser


def _changed(settings: Any, values: Namespace) -> Any:
    """Return the settings with these values in the place of their own."""
    changes = {}
    for name, value in vars(values).items():
        own = getattr(settings, name)
        if is_dataclass(own) and not isinstance(value, Namespace):
            raise UserError(f"{name} is a section: give it `name: value` lines of its own.")
        changes[name] = _changed(own, value) if is_dataclass(own) else value
    return replace(settings, **changes)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = value
    return tree
