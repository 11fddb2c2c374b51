"""Food-101N: photographs of dishes from the web, some labels verified; tested on Food-101."""

from pathlib import Path

import torch

from karat.data.benchmarks.lists import read_lines, read_pairs, require_folder
from karat.data.examples import Dataset, Listing, Request, from_files
from karat.errors import UserError


def food101n(request: Request) -> Dataset:
    """Load all listed images; trusted are those whose label was verified as right for training."""
    root = request.root("Food-101N_release and food-101")
    folder = root / "Food-101N_release"
    remedy = f"unpack Food-101N (kuanghuei.github.io/Food-101N) into {folder}"
    classes = tuple(read_lines(folder / "meta" / "classes.txt", remedy)[1:])  # below the header class_name
    keys = read_lines(folder / "meta" / "imagelist.tsv", remedy)[1:]
    train = _listing(folder / "images", keys, classes, folder / "meta" / "imagelist.tsv")
    verified = read_pairs(folder / "meta" / "verified_train.tsv", remedy)[1:]
    # A verified key that the list of images does not have (the release has one such) names no file: it falls away.
    right = {key for key, verdict in verified if verdict == "1"}
    is_trusted = torch.tensor([key in right for key in keys], dtype=torch.bool)
    require_folder(folder / "images", remedy)
    return from_files(request, train, _food101_test(root / "food-101", classes), classes, is_trusted)


def _food101_test(folder: Path, classes: tuple[str, ...]) -> Listing:
    remedy = f"unpack Food-101 (data.vision.ee.ethz.ch/cvl/food-101.tar.gz) into {folder}; its test part is used"
    keys = [f"{key}.jpg" for key in read_lines(folder / "meta" / "test.txt", remedy)]
    require_folder(folder / "images", remedy)
    return _listing(folder / "images", keys, classes, folder / "meta" / "test.txt")


def _listing(images: Path, keys: list[str], classes: tuple[str, ...], source: Path) -> Listing:
    label_of = {name: label for label, name in enumerate(classes)}
    labels = []
    for key in keys:
        name = key.partition("/")[0]
        if name not in label_of:
            raise UserError(f"{source} has '{key}', whose class is not in the classes.txt of Food-101N: correct it.")
        labels.append(label_of[name])
    return Listing([f"{images}/{key}" for key in keys], labels)
