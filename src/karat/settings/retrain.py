"""The command that trains again, after labels were corrected."""

import shlex
from dataclasses import fields
from pathlib import Path

from karat.settings.config import Config, NoiseSettings


def retrain_command(folder: Path, config: Config, corrections: Path) -> str:
    """Return the command that trains as the run in a folder did, with corrected labels and no noise added to them.

    >>> retrain_command(Path("runs/a"), Config(noise=NoiseSettings("uniform", 0.4)), Path("labels.csv"))
    'karat train --config runs/a/config.yaml --data.corrections labels.csv --noise.kind none --noise.rate 0.0'
    """
    command = ["karat", "train", "--config", str(folder / "config.yaml"), "--data.corrections", str(corrections)]
    none = NoiseSettings()
    for field in fields(NoiseSettings):
        value = getattr(none, field.name)
        if getattr(config.noise, field.name) != value:
            command += [f"--noise.{field.name}", "null" if value is None else str(value)]
    return shlex.join(command)
