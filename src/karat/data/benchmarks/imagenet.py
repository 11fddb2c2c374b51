"""ImageNet (ILSVRC 2012): folders of one class each; the test part of WebVision as well."""

from pathlib import Path

from karat.data.benchmarks.lists import image_names, listed_folders, read_pairs, require_folder
from karat.data.examples import Dataset, Listing, Request, from_files
from karat.errors import UserError

_TRAIN = "unpack the train images of ILSVRC 2012 (image-net.org) there, one folder a class such as n01440764"
_VAL = "unpack the validation images of ILSVRC 2012 (image-net.org) there, one folder a class such as n01440764"


def imagenet(request: Request) -> Dataset:
    """Load ImageNet; its train labels count as right, its validation part is the test part."""
    root = request.root("imagenet/train and imagenet/val")
    folder = require_folder(root / "imagenet" / "train", _TRAIN)
    synsets = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if len(synsets) < 2:
        raise UserError(f"{folder} has {len(synsets)} folders of a class: {_TRAIN}.")
    train, test = listed_folders(folder, synsets, _TRAIN), imagenet_val(root, synsets)
    return from_files(request, train, test, tuple(synsets), curated=True)


def imagenet_train(root: Path, synsets: list[str], per_class: int) -> Listing:
    """List the first images of each class of ImageNet's train part, in sorted order."""
    if per_class < 1:
        raise UserError(f"There are to be {per_class} trusted examples per class: ask for at least 1.")
    folder = require_folder(root / "imagenet" / "train", f"{_TRAIN}; the trusted examples come from it")
    return listed_folders(folder, synsets, f"{_TRAIN}, or ask for fewer trusted examples per class", per_class)


def imagenet_val(root: Path, synsets: list[str]) -> Listing:
    """List ImageNet's validation images of these classes: in class folders, or flat with imagenet/val_labels.txt."""
    folder = require_folder(root / "imagenet" / "val", _VAL)
    labels_file = root / "imagenet" / "val_labels.txt"
    flat = image_names(folder)
    if not flat:
        return listed_folders(folder, synsets, _VAL)
    synset_of = dict(
        read_pairs(labels_file, f"{folder} has no class folders: write a line 'name synset' for each image there")
    )
    label_of = {synset: label for label, synset in enumerate(synsets)}
    listing = Listing([], [])
    for name in flat:
        if name not in synset_of:
            raise UserError(f"{labels_file} has no line for {name}: write its name and its synset.")
        if synset_of[name] in label_of:
            listing.paths.append(str(folder / name))
            listing.labels.append(label_of[synset_of[name]])
    return listing
