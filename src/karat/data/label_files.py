"""Save and load noisy labels as .npz or .csv.

.npz: arrays index, given_label, true_label, transition. .csv: columns index, given_label, true_label. The index is the
place of an example in the data. The true labels are optional in both; a .csv does not keep the transition asked for.
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


def save_labels(labels: NoisyLabels, rows: Tensor, path: str | Path) -> None:
    """Write the labels of the examples at these rows of the data, in the format of the file's ending."""
    path = Path(path)
    write = choose("label file ending", path.suffix, {".npz": _write_npz, ".csv": _write_csv})
    with replacing(path) as temporary, temporary.open("wb") as file:
        write(labels, rows, file)


def load_labels(path: str | Path, rows: Tensor, classes: int) -> NoisyLabels:
    """Read the labels of the examples at these rows of the data, from a file that may hold more of them.

    `true` and `transition` are None where the file does not say.
    """
    path = Path(path)
    read = choose("label file ending", path.suffix, {".npz": read_npz, ".csv": _read_csv})
    columns = read(path)
    index = _integers(columns, "index", path)
    given = _integers(columns, "given_label", path, len(index))
    check_labels(given, classes, f"The values of given_label in {path}")
    order = _places(index, rows, path)
    true = None
    if "true_label" in columns:
        true = _integers(columns, "true_label", path, len(index))
        check_labels(true, classes, f"The values of true_label in {path}")
        true = true[order]
    transition = None
    if "transition" in columns:
        if columns["transition"].dtype.kind != "f":
            raise UserError(f"The transition in {path} holds no floats: save the matrix of probabilities.")
        transition = torch.from_numpy(columns["transition"].astype(np.float64))
        check_transition(transition, classes)
    return NoisyLabels(given[order], true, classes, transition)


def _places(index: Tensor, rows: Tensor, path: Path) -> Tensor:
    """Return where each row of the data stands in the file."""
    place = {row: position for position, row in enumerate(index.tolist())}
    if len(place) != len(index):
        raise UserError(f"The index of {path} names an example twice: give each example one row.")
    missing = [row for row in rows.tolist() if row not in place]
    if missing:
        raise UserError(
            f"{path} has no label for {len(missing)} of the {len(rows)} noisy examples, such as row {missing[0]}: "
            "use the labels of this data, with the seed and limit they were made with."
        )
    return torch.tensor([place[row] for row in rows.tolist()])


def _integers(columns: Mapping[str, Array], name: str, path: Path, count: int | None = None) -> Tensor:
    if name not in columns:
        raise UserError(f"{path} has no {name}: give index and given_label and, where known, true_label.")
    column = columns[name]
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise UserError(
            f"The values of {name} in {path} have shape {column.shape} and type {column.dtype}: "
            "give one integer per example."
        )
    if count is not None and len(column) != count:
        raise UserError(f"{path} has {count} values of index and {len(column)} of {name}: give as many of both.")
    return torch.from_numpy(column.astype(np.int64))


def _write_npz(labels: NoisyLabels, rows: Tensor, file: BinaryIO) -> None:
    parts = {"index": rows, "given_label": labels.given, "true_label": labels.true, "transition": labels.transition}
    arrays: dict[str, Any] = {name: part.numpy() for name, part in parts.items() if part is not None}
    np.savez_compressed(file, **arrays)


def _write_csv(labels: NoisyLabels, rows: Tensor, file: BinaryIO) -> None:
    columns = [rows, labels.given]
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
    return arrays
