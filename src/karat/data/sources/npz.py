"""A user's own arrays in an .npz file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from karat.data.arrays import number_labels
from karat.data.examples import Dataset, Request, from_arrays
from karat.data.readers import Array, read_npz
from karat.errors import UserError


def npz(request: Request) -> Dataset:
    """Load the arrays train_inputs and train_labels and, if there, test_inputs and test_labels, trusted, ids."""
    request.refuse_folder()
    file = Path(request.name)
    arrays = read_npz(file)
    tested = "test_inputs" in arrays or "test_labels" in arrays
    names = ("train_inputs", "train_labels", *(("test_inputs", "test_labels") if tested else ()))
    missing = [name for name in names if name not in arrays]
    if missing:
        raise UserError(f"{file} has no {' and no '.join(missing)}: save the arrays {', '.join(names)} in it.")
    train_labels = arrays["train_labels"]
    test_labels = arrays["test_labels"] if tested else train_labels[:0]
    train_labels, test_labels, classes = number_labels(train_labels, test_labels)
    # flip=False: nobody said that a mirrored image means the same; augmentation.flip can say so.
    dataset = from_arrays(
        file.stem,
        (arrays["train_inputs"], train_labels),
        (arrays["test_inputs"], test_labels) if tested else None,
        classes,
        flip=False,
    )
    ids = arrays.get("ids")
    if ids is not None:
        dataset = replace(dataset, names=_ids(file, ids, len(dataset.train)))
    trusted = arrays.get("trusted")
    if trusted is None:
        return replace(dataset, curated=False)
    if trusted.dtype != bool or trusted.shape != (len(dataset.train),):
        raise UserError(
            f"The array trusted in {file} has type {trusted.dtype} and shape {trusted.shape}: "
            f"give one boolean for each of the {len(dataset.train)} train examples."
        )
    return replace(dataset, curated=False, trusted=torch.from_numpy(trusted))


def _ids(file: Path, ids: Array, count: int) -> tuple[str, ...]:
    if ids.shape != (count,) or ids.dtype.kind not in "iuU" or len(np.unique(ids)) != count:
        raise UserError(
            f"The array ids in {file} has type {ids.dtype} and shape {ids.shape}: give one integer or text for each of "
            f"the {count} train examples, and none twice."
        )
    return tuple(str(name) for name in ids.tolist())
