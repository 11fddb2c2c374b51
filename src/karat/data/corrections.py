"""Labels that somebody looked at, or that were cleaned, in the place of those that came with the data."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch

from karat.data.examples import Dataset
from karat.data.settings import DataSettings, NoiseSettings
from karat.errors import UserError, named, suggestion
from karat.files.safe_csv import read_safe_csv

Key = TypeVar("Key", str, int)


@dataclass(frozen=True)
class Corrections:
    """New labels of train examples, found by the user's names or by their places in the data.

    An empty label leaves the example out, unless a class has that name. `source` is the file they come from.
    """

    names: list[str] | None
    index: list[int] | None
    labels: list[str]
    trusted: list[bool]
    source: str


def check_corrections(data: DataSettings, noise: NoiseSettings) -> None:
    """Refuse corrections together with noise, which would come on top of the noise in them."""
    if data.corrections is not None and (noise.kind != "none" or noise.labels_file is not None):
        raise UserError(
            "data.corrections holds the given labels, noise included: write noise.kind: none, and leave noise.rate and "
            "noise.labels_file out."
        )


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
            f"{path} has the columns {named(list(table.columns), 20) or 'none'}: data.corrections takes the "
            "labels.csv of `karat apply` or the cleaned_labels.csv of a run."
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


def corrected(dataset: Dataset, corrections: Corrections) -> Dataset:
    """Return the dataset with these labels and trusted examples; rows that are not named keep their labels.

    Nobody knows any more whether all labels are right: the dataset is not curated.
    """
    source = corrections.source
    if corrections.names is not None and dataset.names is not None:
        places = _found(corrections.names, {name: place for place, name in enumerate(dataset.names)}, source)
    elif corrections.index is not None:
        places = _found(corrections.index, {row: place for place, row in enumerate(dataset.rows.tolist())}, source)
    else:
        raise UserError(f"{source} has no column index, and the data have no ids: write the file with `karat apply`.")
    numbers = {name: number for number, name in enumerate(dataset.classes)}
    labels = dataset.train.labels.clone()
    trusted = torch.zeros(len(labels), dtype=torch.bool) if dataset.trusted is None else dataset.trusted.clone()
    kept = torch.ones(len(labels), dtype=torch.bool)
    for place, label, is_trusted in zip(places, corrections.labels, corrections.trusted, strict=True):
        if label in numbers:
            labels[place], trusted[place] = numbers[label], is_trusted
        elif label == "":
            kept[place] = False
        else:
            near = suggestion(label, numbers)
            raise UserError(f"{source} has the label '{label}', which is no class of the data.{near}")
    chosen = kept.nonzero().squeeze(1)
    return replace(
        dataset,
        train=replace(dataset.train, labels=labels).subset(chosen),
        rows=dataset.rows[chosen],
        names=None if dataset.names is None else tuple(dataset.names[place] for place in chosen.tolist()),
        trusted=trusted[chosen],
        curated=False,
    )


def _found(keys: list[Key], places: dict[Key, int], source: str) -> list[int]:
    unknown = [key for key in keys if key not in places]
    if unknown:
        raise UserError(
            f"{source} names {len(unknown)} examples that the data do not have, such as '{unknown[0]}': "
            "use it with the data (and the seed and limit) of the run that it was made from."
        )
    if len(set(keys)) != len(keys):
        raise UserError(f"{source} names an example twice: give each example one row.")
    return [places[key] for key in keys]
