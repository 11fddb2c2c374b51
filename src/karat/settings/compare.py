"""Whether two configs are the same run."""

from pathlib import Path
from typing import Any

from karat.errors import UserError
from karat.settings.config import flat

_SHARING = ("training.devices", "training.nodes")


def what_counts(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with dotted keys, without those that do not change the run: other methods', processes.

    >>> what_counts({"method": "gce", "methods": {"gce": {"exponent": 0.4}, "elr": {"weight": 3.0}}})
    {'method': 'gce', 'methods.gce.exponent': 0.4}
    """
    own = {name: value for name, value in config.get("methods", {}).items() if name == config["method"]}
    return {name: value for name, value in flat({**config, "methods": own}).items() if name not in _SHARING}


def differences(stored: dict[str, Any], asked: dict[str, Any], chosen: frozenset[str] = frozenset()) -> list[str]:
    """Return what differs in the settings that count; what the stored run chose itself may be left open in the other.

    >>> differences({"method": "ieg", "model": "small"}, {"method": "ieg", "model": "auto"})
    ['model was small and is now auto']
    >>> differences({"method": "ieg", "model": "small"}, {"method": "ieg", "model": "auto"}, frozenset({"model"}))
    []
    """
    before, now = what_counts(stored), what_counts(asked)
    return [
        f"{key} was {before.get(key)} and is now {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not (key in chosen and now.get(key) in (None, "auto"))
    ]


def check_same_config(
    stored: dict[str, Any], asked: dict[str, Any], where: Path, chosen: frozenset[str] = frozenset()
) -> None:
    """Refuse to go on with another config than the stored one; name what differs."""
    different = differences(stored, asked, chosen)
    if different:
        raise UserError(
            f"{where} belongs to another config ({'; '.join(different)}): "
            "resume without these options, or start a new run with another --run."
        )
