"""A config from values, whoever gives them: the command line, a recipe, a run's config.yaml, or Python."""

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from karat.errors import UserError
from karat.files.checksums import warn_of_changed
from karat.files.yaml_files import read_yaml
from karat.settings.config import Config, flat
from karat.settings.parser import Parser
from karat.settings.presets import preset


def read_config(values: Mapping[str, Any], start: Config | None = None) -> Config:
    """Make a config from nested or dotted values, on top of `start` or else of the preset that they name.

    >>> config = read_config({"preset": "paper", "data.name": "wine", "training": {"steps": 5}})
    >>> config.data.name, config.training.steps, config.methods.ieg.consistency_weight
    ('wine', 5, 20.0)
    >>> read_config({"noise.kind": "asymmetric", "noise.class_map": {9: 1}}).noise.class_map
    {9: 1}
    >>> read_config({"data.nam": "wine"})
    Traceback (most recent call last):
    karat.errors.UserError: There is no setting 'data.nam'. Did you mean 'data.name'? See: karat train --help
    """
    values = flat(dict(values))
    named = preset(values.pop("preset", "default"))
    parser = _parser()
    known = {option.removeprefix("--") for option in parser.option_names()}
    for key in values:
        if key not in known:
            parser.error(f"Key '{key}' is not expected")
    # Without the defaults: jsonargparse takes 60 ms to parse all settings, 1 ms for these; a recipe has many cells.
    try:
        return _changed(start or named, parser.parse_object(_nested(values), defaults=False))
    except (TypeError, OverflowError, RecursionError) as error:  # a value that no setting of its kind can hold
        raise UserError(f"The settings cannot be read ({error}): mend them. See: karat train --help") from error


def read_run_config(folder: Path) -> Config:
    """Read the config.yaml of a run folder."""
    path = folder / "config.yaml"
    if not path.exists():
        raise UserError(f"There is no run in {folder}: {path.name} is missing, check the folder.")
    try:
        values = read_yaml(path)
    except UserError as error:
        raise UserError(f"{error} Or delete the run's folder.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} holds no settings: delete the run's folder.")
    try:
        config = read_config(values)
    except UserError as error:
        raise UserError(f"{path} does not fit this version of Karat: {error} Train again.") from error
    warn_of_changed(folder, path.name)
    return config


@cache
def _parser() -> Parser:
    parser = Parser(prog="karat train", exit_on_error=False)
    parser.add_class_arguments(Config)
    return parser


def _changed(settings: Any, values: Namespace, section: str = "") -> Any:
    """Return the settings with these values in the place of their own."""
    changes = {}
    for name, value in vars(values).items():
        own = getattr(settings, name)
        if is_dataclass(own) and not isinstance(value, Namespace):
            raise UserError(f"{section}{name} is a section: give it `name: value` lines of its own.")
        changes[name] = _changed(own, value, f"{section}{name}.") if is_dataclass(own) else value
    try:
        return replace(settings, **changes)
    except UserError as error:
        if str(error).split()[0] in changes:  # settings of Algorithm 1 do not know what their section is called
            raise UserError(f"{section}{error}") from error
        raise


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = value
    return tree
