"""Datasets by name or from an .npz file. Nothing is downloaded unless asked for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from karat.data.collections.bundled import breast_cancer, digits, wine
from karat.data.collections.cifar import cifar10, cifar100
from karat.data.collections.clothing1m import clothing1m
from karat.data.collections.fashion_mnist import fashion_mnist
from karat.data.collections.food101n import food101n
from karat.data.collections.imagenet import imagenet
from karat.data.collections.npz import npz
from karat.data.collections.webvision import webvision, webvision_mini
from karat.data.examples import Dataset, Request
from karat.data.trusted import rank_within_class
from karat.errors import UserError, choose

DATASETS: Mapping[str, Callable[[Request], Dataset]] = {
    "digits": digits,
    "wine": wine,
    "breast_cancer": breast_cancer,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "imagenet": imagenet,
    "webvision": webvision,
    "webvision_mini": webvision_mini,
    "clothing1m": clothing1m,
    "food101n": food101n,
}
SIZED = ("imagenet", "webvision", "webvision_mini", "clothing1m", "food101n")  # images are resized as they are read
DOWNLOADABLE = ("cifar10", "cifar100")


def load_dataset(
    name: str,
    path: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    *,
    image_size: int | None = None,
    trusted_per_class: int = 10,
    download: bool = False,
) -> Dataset:
    """Load a dataset by its name, or from an .npz file; keep at most `limit` train examples, class-balanced.

    The path is the folder of the dataset's files. The seed decides which examples the limit keeps, nothing else.
    Large photographs are decoded as they are needed, at `image_size` pixels square (224 where None). WebVision takes
    `trusted_per_class` trusted examples from ImageNet. Where `download` is set, CIFAR's files are fetched if missing.

    >>> digits = load_dataset("digits", limit=500)
    >>> tuple(digits.train.inputs.shape), len(digits.test), digits.train.labels.bincount().tolist()[:3]
    ((500, 1, 12, 12), 497, [50, 50, 50])
    """
    load = npz if name.endswith(".npz") else choose("dataset (or .npz file)", name, DATASETS)
    if image_size is not None and name not in SIZED:
        raise UserError(f"Dataset '{name}' has inputs of one size: leave image_size out.")
    if download and name not in DOWNLOADABLE:
        raise UserError(
            f"Dataset '{name}' cannot be downloaded, only {' and '.join(DOWNLOADABLE)}: leave download out."
        )
    folder = None if path is None else Path(path)
    dataset = load(Request(name, folder, image_size, trusted_per_class, download))
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
