"""Save and load noisy labels as .npz or .csv; load those of others, such as CIFAR-N, also from .pt.

.npz: arrays index, given_label, true_label, transition. .csv: columns index, given_label, true_label. The index is the
place of an example in the data. The true labels are optional in both, and -1 where an example is none of the classes;
a .csv does not keep the transition asked for.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from karat.data.noise.label_tables import read_label_table
from karat.data.noise.labels import NoisyLabels, check_labels
from karat.data.readers import Array
from karat.errors import UserError, choose, suggestion
from karat.files.atomic import replacing
from karat.noise_matrix import check_transition


def save_labels(labels: NoisyLabels, rows: Tensor, path: str | Path) -> None:
    """Write the labels of the examples at these rows of the data, in the format of the file's ending."""
    path = Path(path)
    write = choose("label file ending", path.suffix, {".npz": _write_npz, ".csv": _write_csv})
    with replacing(path) as temporary, temporary.open("wb") as file:
        write(labels, rows, file)


def load_labels(
    path: str | Path,
    rows: Tensor,
    classes: int,
    *,
    column: str | None = None,
    names: Sequence[str] = (),
    count: int | None = None,
    known: Tensor | None = None,
) -> NoisyLabels:
    """Read the labels of the examples at these rows of the data, from a file that may hold more of them.

    `column` holds the given labels (None: given_label): class numbers, or the classes' `names`. A file without an index
    is in the order of the data and has a label for each of its `count` train examples (None: nobody knows how many).
    `known` are the true labels of the rows for a file that does not say them; else `true` is None, as is `transition`.
    """
    path = Path(path)
    column = column or "given_label"
    columns = read_label_table(path)
    if column not in columns:
        raise UserError(
            f"{path} has no {column}: give index and {column} and, where known, true_label, or name one of its "
            f"columns ({', '.join(sorted(columns)) or 'none'}) in noise.labels_column."
        )
    given = _labels(columns, column, path, names)
    check_labels(given, classes, f"The values of {column} in {path}")
    index = _labels(columns, "index", path, ()) if "index" in columns else _whole_index(path, len(given), rows, count)
    _check_count(path, column, given, index)
    order = _places(index, rows, path)
    true = known
    truth = next((name for name in _TRUTHS if name in columns and name != column), None)
    if truth is not None:
        true = _labels(columns, truth, path, names)
        check_labels(true, classes, f"The values of {truth} in {path}", lowest=-1)
        _check_count(path, truth, true, index)
        true = true[order]
        if "index" not in columns:
            _check_order(path, truth, true, known)
    transition = None
    if "transition" in columns:
        if columns["transition"].dtype.kind != "f":
            raise UserError(f"The transition in {path} holds no floats: save the matrix of probabilities.")
        transition = torch.from_numpy(columns["transition"].astype(np.float64))
        check_transition(transition, classes)
    return NoisyLabels(given[order], true, classes, transition)


_TRUTHS = ("true_label", "clean_label")  # ours, and CIFAR-N's


def _whole_index(path: Path, length: int, rows: Tensor, count: int | None) -> Tensor:
    """Number the labels of a file without an index; it must have one for each train example."""
    last = int(rows.max()) if len(rows) else -1
    if (count is not None and length != count) or length <= last:
        examples = f"{count} train examples" if count is not None else f"train examples up to row {last}"
        raise UserError(
            f"{path} has {length} labels and no index, and the data have {examples}: "
            "add a column index with the place of each example in the data."
        )
    return torch.arange(length)


def _check_order(path: Path, truth: str, true: Tensor, known: Tensor | None) -> None:
    """Refuse labels in another order than the data, told by true labels that are known twice."""
    if known is None:
        return
    different = int(((true != known) & (true >= 0)).sum())
    if different:
        raise UserError(
            f"The {truth} of {path} differs from the data's own labels in {different} of {len(true)} rows, so the file "
            "is in another order: add a column index with the place of each example in the data."
        )


def _check_count(path: Path, name: str, column: Tensor, index: Tensor) -> None:
    if len(column) != len(index):
        raise UserError(f"{path} has {len(index)} values of index and {len(column)} of {name}: give as many of both.")


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


def _labels(columns: Mapping[str, Array], name: str, path: Path, names: Sequence[str]) -> Tensor:
    """Return a column of integers, or of class names as their numbers."""
    column = columns[name]
    if column.ndim == 1 and column.dtype.kind == "U" and names:
        numbers = {text: number for number, text in enumerate(names)}
        unknown = next((text for text in column.tolist() if text not in numbers), None)
        if unknown is not None:
            legal = ", ".join(names[:10]) + ", …" * (len(names) > 10)
            raise UserError(
                f"The column {name} of {path} has the class '{unknown}'.{suggestion(unknown, names)} "
                f"Write class numbers in the whole column, or the classes' names: {legal}."
            )
        return torch.tensor([numbers[text] for text in column.tolist()])
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise UserError(
            f"The values of {name} in {path} have shape {column.shape} and type {column.dtype}: "
            "give one integer per example."
        )
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
