"""A user's own arrays in an .npz file."""

from dataclasses import replace
from pathlib import Path

import torch

from karat.data.arrays import number_labels
from karat.data.examples import Dataset, Request, from_arrays
from karat.data.readers import read_npz
from karat.errors import UserError


def npz(request: Request) -> Dataset:
    """Load the arrays train_inputs, train_labels, test_inputs, test_labels and, if there, trusted."""
    request.refuse_folder()
    file = Path(request.name)
    arrays = read_npz(file)
    names = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise UserError(f"{file} has no {' and no '.join(missing)}: save the arrays {', '.join(names)} in it.")
    train_labels, test_labels, classes = number_labels(arrays["train_labels"], arrays["test_labels"])
    # flip=False: nobody said that a mirrored image means the same; augmentation.flip can say so.
    dataset = from_arrays(
        file.stem,
        (arrays["train_inputs"], train_labels),
        (arrays["test_inputs"], test_labels),
        classes,
        flip=False,
    )
    trusted = arrays.get("trusted")
    if trusted is None:
        return replace(dataset, curated=False)
    if trusted.dtype != bool or trusted.shape != (len(dataset.train),):
        raise UserError(
            f"The array trusted in {file} has type {trusted.dtype} and shape {trusted.shape}: "
            f"give one boolean for each of the {len(dataset.train)} train examples."
        )
    return replace(dataset, curated=False, trusted=torch.from_numpy(trusted))
