"""Datasets by name, and a user's own data by their path. Nothing is downloaded unless asked for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from karat.data.benchmarks.bundled import breast_cancer, digits, wine
from karat.data.benchmarks.cifar import cifar10, cifar100
from karat.data.benchmarks.clothing1m import clothing1m
from karat.data.benchmarks.fashion_mnist import fashion_mnist
from karat.data.benchmarks.food101n import food101n
from karat.data.benchmarks.imagenet import imagenet
from karat.data.benchmarks.webvision import webvision, webvision_mini
from karat.data.examples import Dataset, Request
from karat.data.settings import DRAWN_PER_CLASS, DataSettings, changed_settings
from karat.data.sources.assemble import assemble
from karat.data.sources.folders import read_folder
from karat.data.sources.hugging_face import is_hugging_face, read_hugging_face
from karat.data.sources.npz import read_arrays
from karat.data.sources.rows import Rows
from karat.data.sources.shards import is_shards, read_shards
from karat.data.sources.table_files import TABLE_ENDINGS, is_table
from karat.data.sources.tables import read_tables
from karat.data.trusted import limited_rows
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
_KIND = "dataset (or file or folder of your own)"
DOWNLOADABLE = ("cifar10", "cifar100")
_IMAGES = ("image_size", "on_bad_image", "trusted", "test")
_TEXTS = ("encoder", "download")
# The settings that not all data read, and which do.
READ_BY: Mapping[str, tuple[str, ...]] = {
    "tables": (*_IMAGES, *_TEXTS, "label_column", "path_column", "text_column", "id_column", "features", "missing"),
    "folders": (*_IMAGES, *_TEXTS),
    **dict.fromkeys(SIZED, ("image_size",)),
    **dict.fromkeys(DOWNLOADABLE, ("download",)),
}
_OWN_KINDS: dict[Callable[[DataSettings], Rows], str] = {
    read_tables: "tables",
    read_hugging_face: "tables",
    read_shards: "tables",
    read_folder: "folders",
}


def load_dataset(
    name: str,
    path: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    *,
    image_size: int | None = None,
    trusted_per_class: int = DRAWN_PER_CLASS,
    download: bool = False,
) -> Dataset:
    """Load a dataset by its name, or own data; keep at most `limit` train examples, class-balanced.

    The path is the folder of the dataset's files. The seed decides which examples the limit keeps, nothing else.
    Large photographs are decoded as they are needed, at `image_size` pixels square (224 where None). WebVision takes
    `trusted_per_class` trusted examples from ImageNet. Where `download` is set, CIFAR's files are fetched if missing.

    >>> digits = load_dataset("digits", limit=500)
    >>> tuple(digits.train.inputs.shape), len(digits.test), digits.train.labels.bincount().tolist()[:3]
    ((500, 1, 12, 12), 497, [50, 50, 50])
    """
    folder = None if path is None else Path(path)
    return load_data(DataSettings(name, folder, limit, trusted_per_class, image_size, download), seed)


def load_data(data: DataSettings, seed: int = 0) -> Dataset:
    """Load what the settings name: a dataset by its name, or own data of any kind."""
    source = None if data.name in DATASETS else own_source(data)
    if source is not None:
        _refuse_unread(data, _OWN_KINDS.get(source, data.name))
        return assemble(source(data), data, seed)
    load = choose(_KIND, data.name, DATASETS)
    _refuse_unread(data, data.name)
    drawn = data.drawn_per_class(curated=True)
    dataset = load(Request(data.name, data.path, data.image_size, drawn, data.download))
    return dataset if data.limit is None else _limited(dataset, data.limit, seed)


def own_source(data: DataSettings) -> Callable[[DataSettings], Rows] | None:
    """Return the reader of a user's own table, folder or arrays; None where the name is none of them."""
    path = Path(data.name)
    if is_shards(data.name) and not is_hugging_face(path):
        return read_shards
    if data.name.endswith(".npz"):
        Request(data.name, data.path).refuse_folder()
        return read_arrays
    if is_table(data.name):
        return read_tables
    if not path.is_dir():
        if path.exists() or "/" in data.name or path.suffix:
            there = f"{path} is not a file of data" if path.exists() else f"There is no file or folder {path}"
            raise UserError(
                f"{there}: give a folder of images or texts, a table ({', '.join(TABLE_ENDINGS)}), an .npz, "
                "shards (docs/own_data.md), or the name of a dataset (docs/datasets.md)."
            )
        return None
    if data.path is not None and not is_hugging_face(path):
        raise UserError(f"{path} is a folder of data itself: leave data.path out.")
    return read_hugging_face if is_hugging_face(path) else read_folder


def _refuse_unread(data: DataSettings, kind: str) -> None:
    """Raise a UserError for settings that are given and that data of this kind do not read."""
    for name in changed_settings(data):
        readers = [other for other, settings in READ_BY.items() if name in settings]
        if readers and kind not in readers:
            raise UserError(f"data.{name} is for {', '.join(readers)}, and not for '{data.name}': leave it out.")


def _limited(dataset: Dataset, limit: int, seed: int) -> Dataset:
    kept = limited_rows(dataset.train.labels, dataset.trusted, len(dataset.classes), limit, seed)
    return replace(
        dataset,
        train=dataset.train.subset(kept),
        rows=dataset.rows[kept],
        trusted=None if dataset.trusted is None else dataset.trusted[kept],
        names=None if dataset.names is None else tuple(dataset.names[row] for row in kept.tolist()),
    )
