"""Datasets by name or from an .npz file, as whole tensors. Nothing is downloaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets as sklearn_datasets
from sklearn.model_selection import train_test_split
from torch import Tensor

from karat.data.arrays import number_labels, scale_inputs
from karat.data.noise import CIFAR10_CLASS_MAP, ClassMap, check_labels
from karat.data.readers import Array, read_idx, read_npz, read_parquet_images, require
from karat.data.trusted import rank_within_class
from karat.errors import UserError, choose

FASHION_MNIST_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # Debian's package dataset-fashion-mnist
FASHION_MNIST_CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

Part = tuple[Array, Array]  # inputs, labels


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels, example by example."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor) -> "Examples":
        """Return the examples at these indices."""
        return Examples(self.inputs[indices], self.labels[indices])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A train and a test part.

    `flip`: a mirrored image means the same, so augmentation may mirror. `class_map` is the dataset's usual asymmetric
    noise. `curated`: the train labels are known to be right, as those of a benchmark are and those of a user are not.
    `rows` are the places of the train examples in what was loaded, `trusted` says which of them the user verified.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    flip: bool
    rows: Tensor
    curated: bool = True
    class_map: ClassMap | None = None
    trusted: Tensor | None = None


def load_dataset(name: str, path: str | Path | None = None, seed: int = 0, limit: int | None = None) -> Dataset:
    """Load a dataset by its name, or from an .npz file; keep at most `limit` train examples, class-balanced.

    The path is the folder of fashion_mnist or cifar10. The seed decides which examples the limit keeps,
    nothing else.

    >>> digits = load_dataset("digits", limit=500)
    >>> tuple(digits.train.inputs.shape), len(digits.test), digits.train.labels.bincount().tolist()[:3]
    ((500, 1, 12, 12), 497, [50, 50, 50])
    """
    folder = None if path is None else Path(path)
    if name.endswith(".npz"):
        dataset = _npz(Path(name), folder)
    else:
        dataset = choose("dataset (or .npz file)", name, DATASETS)(folder)
    return dataset if limit is None else _limited(dataset, limit, seed)


def _limited(dataset: Dataset, limit: int, seed: int) -> Dataset:
    classes = len(dataset.classes)
    if limit < classes:
        raise UserError(
            f"A limit of {limit} train examples cannot hold all {classes} classes: allow at least {classes}."
        )
    ranks = rank_within_class(dataset.train.labels, torch.Generator().manual_seed(seed))
    # The lowest ranks: as balanced as the classes allow, also where one is smaller than its share.
    kept = ranks.argsort(stable=True)[:limit].sort().values
    return replace(
        dataset,
        train=dataset.train.subset(kept),
        rows=dataset.rows[kept],
        trusted=None if dataset.trusted is None else dataset.trusted[kept],
    )


def _build(name: str, train: Part, test: Part, classes: tuple[str, ...], flip: bool) -> Dataset:
    inputs = scale_inputs(train[0], test[0])
    parts = []
    for part, part_inputs, part_labels in zip(("train", "test"), inputs, (train[1], test[1]), strict=True):
        labels = torch.from_numpy(part_labels.astype(np.int64))
        check_labels(labels, len(classes), f"The {part} labels of {name}")
        if len(part_inputs) != len(labels):
            raise UserError(
                f"The {part} part of {name} has {len(part_inputs)} inputs and {len(labels)} labels: "
                "give one label per input."
            )
        parts.append(Examples(part_inputs, labels))
    return Dataset(name, parts[0], parts[1], classes, flip, rows=torch.arange(len(parts[0])))


def _npz(file: Path, folder: Path | None) -> Dataset:
    _refuse_folder(file.name, folder)
    arrays = read_npz(file)
    names = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise UserError(f"{file} has no {' and no '.join(missing)}: save the arrays {', '.join(names)} in it.")
    train_labels, test_labels, classes = number_labels(arrays["train_labels"], arrays["test_labels"])
    # flip=False: nobody said that a mirrored image means the same; augmentation.flip can say so.
    dataset = _build(
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


def _split(name: str, bunch: Any, inputs: Array, test_size: int | float) -> Dataset:
    # The split has its own fixed seed: other noise or another run never changes which examples are tested.
    train_inputs, test_inputs, train_labels, test_labels = train_test_split(
        inputs, bunch.target, test_size=test_size, stratify=bunch.target, random_state=0
    )
    classes = tuple(str(target) for target in bunch.target_names)
    return _build(name, (train_inputs, train_labels), (test_inputs, test_labels), classes, flip=False)


def _digits(folder: Path | None) -> Dataset:
    _refuse_folder("digits", folder)
    bunch = sklearn_datasets.load_digits()
    # Background around the 8x8 pixels, to 12x12: it leaves augmentation room to move the digit.
    inputs = np.pad(bunch.images / 16, ((0, 0), (2, 2), (2, 2)))
    return _split("digits", bunch, inputs, test_size=497)  # 1,300 train: 100 trusted leave 1,200 noisy


def _wine(folder: Path | None) -> Dataset:
    _refuse_folder("wine", folder)
    bunch = sklearn_datasets.load_wine()
    return _split("wine", bunch, bunch.data, test_size=0.3)


def _breast_cancer(folder: Path | None) -> Dataset:
    _refuse_folder("breast_cancer", folder)
    bunch = sklearn_datasets.load_breast_cancer()
    return _split("breast_cancer", bunch, bunch.data, test_size=0.3)


def _fashion_mnist(folder: Path | None) -> Dataset:
    source = folder or FASHION_MNIST_FOLDER

    def read(name: str) -> Array:
        if (source / name).is_file():
            return read_idx(source / name)
        require(
            source / f"{name}.gz",
            "install the Debian package dataset-fashion-mnist, "
            "or copy the file there from github.com/zalandoresearch/fashion-mnist",
        )
        return read_idx(source / f"{name}.gz")

    train = read("train-images-idx3-ubyte"), read("train-labels-idx1-ubyte")
    test = read("t10k-images-idx3-ubyte"), read("t10k-labels-idx1-ubyte")
    return _build("fashion_mnist", train, test, FASHION_MNIST_CLASSES, flip=True)


def _cifar10(folder: Path | None) -> Dataset:
    if folder is None:
        raise UserError(
            "Dataset 'cifar10' comes without a default folder: "
            "set the path to the folder with cifar10_train.parquet and cifar10_test.parquet."
        )
    files = folder / "cifar10_train.parquet", folder / "cifar10_test.parquet"
    for file in files:
        require(file, "put it there, a table with the columns image (encoded bytes) and label (0 to 9)")
    train, test = (read_parquet_images(file) for file in files)
    return replace(_build("cifar10", train, test, CIFAR10_CLASSES, flip=True), class_map=CIFAR10_CLASS_MAP)


def _refuse_folder(name: str, folder: Path | None) -> None:
    if folder is not None:
        raise UserError(f"Dataset '{name}' is not read from a folder: leave the path out.")


DATASETS: Mapping[str, Callable[[Path | None], Dataset]] = {
    "digits": _digits,
    "wine": _wine,
    "breast_cancer": _breast_cancer,
    "fashion_mnist": _fashion_mnist,
    "cifar10": _cifar10,
}
