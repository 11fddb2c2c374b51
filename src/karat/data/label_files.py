"""Save and load noisy labels as .npz or .csv.

.npz: arrays given_label, true_label, transition. .csv: columns index, given_label, true_label.
The true labels are optional in both; a .csv does not keep the transition that was asked for.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from karat.data.noise import NoisyLabels, check_labels, check_transition
from karat.data.readers import Array, read_npz, require
from karat.errors import UserError, choose
from karat.files import replacing


def save_labels(labels: NoisyLabels, path: str | Path) -> None:
    """Write the labels in the format of the file's ending; the file appears whole or not at all."""
    path = Path(path)
    write = choose("label file ending", path.suffix, {".npz": _write_npz, ".csv": _write_csv})
    with replacing(path) as temporary, temporary.open("wb") as file:
        write(labels, file)


def load_labels(path: str | Path, count: int, classes: int) -> NoisyLabels:
    """Read the labels of so many examples; `true` and `transition` are None where the file does not say."""
    path = Path(path)
    read = choose("label file ending", path.suffix, {".npz": read_npz, ".csv": _read_csv})
    columns = read(path)
    given = _integers(columns, "given_label", path, count)
    check_labels(given, classes, f"The values of given_label in {path}")
    true = None
    if "true_label" in columns:
        true = _integers(columns, "true_label", path, count)
        check_labels(true, classes, f"The values of true_label in {path}")
    transition = None
    if "transition" in columns:
        if columns["transition"].dtype.kind != "f":
            raise UserError(f"The transition in {path} holds no floats: save the matrix of probabilities.")
        transition = torch.from_numpy(columns["transition"].astype(np.float64))
        check_transition(transition, classes)
    if "index" in columns:  # rows may come in any order
        index = _integers(columns, "index", path, count)
        order = index.argsort()
        if not torch.equal(index[order], torch.arange(count)):
            raise UserError(
                f"The column index of {path} must hold every number from 0 to {count - 1} once: "
                "number its rows anew in the order of the data."
            )
        given, true = given[order], None if true is None else true[order]
    return NoisyLabels(given, true, classes, transition)


def _integers(columns: Mapping[str, Array], name: str, path: Path, count: int) -> Tensor:
    if name not in columns:
        raise UserError(f"{path} has no {name}: give the labels this name.")
    column = columns[name]
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise UserError(
            f"The values of {name} in {path} have shape {column.shape} and type {column.dtype}: "
            "give one integer per example."
        )
    if len(column) != count:
        raise UserError(f"{path} has {len(column)} values of {name} for {count} examples: use the labels of this data.")
    return torch.from_numpy(column.astype(np.int64))


def _write_npz(labels: NoisyLabels, file: BinaryIO) -> None:
    parts = {"given_label": labels.given, "true_label": labels.true, "transition": labels.transition}
    arrays: dict[str, Any] = {name: part.numpy() for name, part in parts.items() if part is not None}
    np.savez_compressed(file, **arrays)


def _write_csv(labels: NoisyLabels, file: BinaryIO) -> None:
    columns = [torch.arange(len(labels.given)), labels.given]
    if labels.true is not None:
        columns.append(labels.true)
    header = ",".join(["index", "given_label", "true_label"][: len(columns)])
    np.savetxt(file, torch.stack(columns, dim=1).numpy(), fmt="%d", delimiter=",", header=header, comments="")


def _read_csv(path: Path) -> dict[str, Array]:
    require(path, "check the path")
    try:
        # utf-8-sig: spreadsheets write a byte-order mark.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
        header = rows[0] if rows else []
        for number, row in enumerate(rows, start=1):
            if len(row) != len(header):
                raise ValueError(f"row {number} has {len(row)} cells, the first {len(header)}")
        arrays: dict[str, Array] = {}
        for column, name in enumerate(header):
            if name in ("index", "given_label", "true_label"):
                arrays[name] = np.array([int(row[column]) for row in rows[1:]], dtype=np.int64)
    except (OSError, ValueError, OverflowError, csv.Error) as error:
        raise UserError(
            f"{path} is not a table of integers separated by commas ({error}): "
            "write the columns index, given_label and, where known, true_label."
        ) from error
    if "index" not in arrays:
        raise UserError(f"{path} has no column index: add one that numbers the examples from 0.")
    return arrays
