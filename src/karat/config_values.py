"""A config from plain values, such as those of a recipe: checked as the command line checks its options."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from karat.config import Config, config_as_dict, flat, preset
from karat.errors import UserError
from karat.parser import Parser


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
    parser = _parser(values.pop("preset", "default"))
    known = {option.removeprefix("--") for option in parser._option_names()}
    for key in values:
        if key not in known:
            parser.error(f"Key '{key}' is not expected")
    options = parser.instantiate(parser.parse_object(_nested(values)))
    return Config(**{name: options[name] for name in Config.__dataclass_fields__})


@lru_cache
def _parser(preset_name: str) -> Parser:
    if not isinstance(preset_name, str):
        raise UserError(f"preset is {preset_name}: write the name of a preset.")
    parser = Parser(prog="karat train", exit_on_error=False)
    parser.add_class_arguments(Config)
    parser.set_defaults(flat(config_as_dict(preset(preset_name))))
    return parser


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[name] = value
    return tree
