"""WebVision 1.0: photographs that a search for the class name found; tested on ImageNet's validation images."""

from pathlib import Path

import torch

from karat.data.benchmarks.imagenet import imagenet_train, imagenet_val
from karat.data.benchmarks.lists import read_labels, read_lines, require_folder
from karat.data.examples import Dataset, Listing, Request, from_files
from karat.errors import UserError

MINI_CLASSES = 50


def webvision_mini(request: Request) -> Dataset:
    """Load the first 50 classes of what Google found."""
    return _load(request, ("google",), MINI_CLASSES)


def webvision(request: Request) -> Dataset:
    """Load all classes of what Google and Flickr found."""
    return _load(request, ("google", "flickr"), None)


def _load(request: Request, sources: tuple[str, ...], class_count: int | None) -> Dataset:
    root = request.root("webvision and imagenet")
    folder = root / "webvision"
    remedy = f"unpack WebVision 1.0 (data.vision.ee.ethz.ch/cvl/webvision/dataset2017.html) into {folder}"
    synsets, classes = _read_synsets(folder / "info" / "synsets.txt", remedy, class_count)
    noisy = Listing([], [])
    for source in sources:
        for image, label in read_labels(folder / "info" / f"train_filelist_{source}.txt", remedy):
            if class_count is None or label < class_count:
                noisy.paths.append(f"{folder}/{image}")
                noisy.labels.append(label)
        require_folder(folder / source, remedy)
    trusted = imagenet_train(root, synsets, request.trusted_per_class)
    is_trusted = torch.arange(len(noisy.paths) + len(trusted.paths)) >= len(noisy.paths)
    return from_files(request, noisy.joined(trusted), imagenet_val(root, synsets), classes, is_trusted)


def _read_synsets(path: Path, remedy: str, class_count: int | None) -> tuple[list[str], tuple[str, ...]]:
    """Read the synsets, and the synsets with their first name: the name alone stands for two classes at times."""
    synsets, classes = [], []
    for line in read_lines(path, remedy)[:class_count]:
        synset, *names = line.split(maxsplit=1)
        if not names:
            raise UserError(f"{path} has the line '{line}': write a synset and its names, as in 'n01440764 tench'.")
        synsets.append(synset)
        classes.append(f"{synset} {names[0].split(',')[0]}")
    return synsets, tuple(classes)
