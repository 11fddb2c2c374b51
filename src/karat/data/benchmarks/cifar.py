"""CIFAR-10 and CIFAR-100: parquet tables, or the folder of the python version."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib import import_module
from pathlib import Path

import numpy as np

from karat.data.benchmarks.array_files import read_parquet_images
from karat.data.benchmarks.cifar_files import read_cifar_file, read_cifar_names
from karat.data.examples import Dataset, Part, Request, from_arrays
from karat.data.noise.labels import CIFAR10_CLASS_MAP
from karat.errors import UserError
from karat.files.required import require

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR100_CLASSES = (
    *("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy"),
    *("bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee"),
    *("clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant"),
    *("flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower"),
    *("leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom"),
    *("oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate"),
    *("poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark"),
    *("shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower"),
    *("sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor", "train", "trout", "tulip"),
    *("turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm"),
)


@dataclass(frozen=True)
class _Version:
    """How one of the two is distributed."""

    name: str
    classes: tuple[str, ...]
    folder: str
    train_files: tuple[str, ...]
    test_file: str
    meta_file: str
    labels_key: str
    names_key: str
    torchvision: str


_CIFAR10 = _Version(
    name="cifar10",
    classes=CIFAR10_CLASSES,
    folder="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test_file="test_batch",
    meta_file="batches.meta",
    labels_key="labels",
    names_key="label_names",
    torchvision="CIFAR10",
)
_CIFAR100 = _Version(
    name="cifar100",
    classes=CIFAR100_CLASSES,
    folder="cifar-100-python",
    train_files=("train",),
    test_file="test",
    meta_file="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    torchvision="CIFAR100",
)


def cifar10(request: Request) -> Dataset:
    """Load 50,000 train and 10,000 test images of 10 classes, 32x32."""
    return replace(_load(_CIFAR10, request), class_map=CIFAR10_CLASS_MAP)


def cifar100(request: Request) -> Dataset:
    """Load 50,000 train and 10,000 test images of 100 classes, 32x32."""
    return _load(_CIFAR100, request)


def _load(version: _Version, request: Request) -> Dataset:
    tables = f"{version.name}_train.parquet", f"{version.name}_test.parquet"
    folder = request.root(f"{tables[0]} and {tables[1]}, or with {version.folder}")
    files = [folder / table for table in tables]
    python = folder / version.folder
    if request.download and not python.is_dir() and not any(file.is_file() for file in files):
        _download(version, folder)
    if python.is_dir() and not any(file.is_file() for file in files):
        return _python_version(version, python)
    for file in files:
        require(
            file,
            "put it there, a table with the columns image (encoded bytes) and label "
            f"(0 to {len(version.classes) - 1}), or unpack the python version, {version.folder}, into {folder}",
        )
    train, test = (read_parquet_images(file) for file in files)
    return from_arrays(version.name, train, test, version.classes, flip=True)


def _python_version(version: _Version, folder: Path) -> Dataset:
    remedy = f"unpack the python version from www.cs.toronto.edu/~kriz/cifar.html, so that its files are in {folder}"

    def read(names: Sequence[str]) -> Part:
        batches = [read_cifar_file(folder / name, version.labels_key, remedy) for name in names]
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    classes = read_cifar_names(folder / version.meta_file, version.names_key, remedy)
    return from_arrays(version.name, read(version.train_files), read([version.test_file]), classes, flip=True)


def _download(version: _Version, folder: Path) -> None:
    try:
        datasets = import_module("torchvision.datasets")
    except ImportError as error:
        raise UserError(
            f"Downloading {version.name} needs torchvision: pip install torchvision, "
            f"or put {version.folder} into {folder} yourself."
        ) from error
    try:
        getattr(datasets, version.torchvision)(root=str(folder), download=True)
    except (OSError, RuntimeError, HTTPException) as error:
        raise UserError(
            f"Downloading {version.name} failed ({error}): try again, or put {version.folder} into {folder} yourself."
        ) from error
