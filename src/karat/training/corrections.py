"""The labels of `karat apply`, and cleaned_labels.csv, read for the next training."""

import shlex
from dataclasses import fields
from pathlib import Path

from karat.data.corrections import Corrections
from karat.errors import UserError
from karat.files.safe_csv import read_safe_csv
from karat.settings.config import Config, NoiseSettings


def read_corrections(path: Path) -> Corrections:
    """Read labels.csv (`id, index, label, trusted`) or cleaned_labels.csv (`id, index, cleaned_label, action`)."""
    table = read_safe_csv(path)
    if {"label", "trusted"} <= set(table.columns):
        labels, trusted = table["label"], table["trusted"]
        if trusted.isna().any():
            raise UserError(f"{path} has an empty cell in the column trusted: write true or false.")
    elif {"cleaned_label", "action"} <= set(table.columns):
        labels, trusted = table["cleaned_label"], table["action"] == "trusted"
    else:
        raise UserError(
            f"{path} has the columns {', '.join(table.columns) or 'none'}: data.labels_file takes the labels.csv of "
            "`karat apply` or the cleaned_labels.csv of a run."
        )
    index = table.get("index")
    if index is not None and index.isna().any():
        raise UserError(f"{path} has an empty cell in the column index: write the place of the example in the data.")
    return Corrections(
        names=table["id"].tolist() if "id" in table else None,
        index=None if index is None else index.tolist(),
        labels=labels.tolist(),
        trusted=trusted.astype(bool).tolist(),
        source=str(path),
    )


def retrain_command(folder: Path, config: Config, labels: Path) -> str:
    """Return the command that trains as the run in a folder did, with the labels of a file and no noise added to them.

    >>> retrain_command(Path("runs/a"), Config(noise=NoiseSettings("uniform", 0.4)), Path("labels.csv"))
    'karat train --config runs/a/config.yaml --data.labels_file labels.csv --noise.kind none --noise.rate 0.0'
    """
    command = ["karat", "train", "--config", str(folder / "config.yaml"), "--data.labels_file", str(labels)]
    none = NoiseSettings()
    for field in fields(NoiseSettings):
        value = getattr(none, field.name)
        if getattr(config.noise, field.name) != value:
            command += [f"--noise.{field.name}", "null" if value is None else str(value)]
    return shlex.join(command)
