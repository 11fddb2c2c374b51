"""Clothing1M: photographs from shops with labels from the surrounding text, some verified by hand."""

import torch

from karat.data.benchmarks.lists import read_labels, read_lines, require_folder
from karat.data.examples import Dataset, Listing, Request, from_files
from karat.errors import UserError


def clothing1m(request: Request) -> Dataset:
    """Load the noisy train part, the clean train part as trusted, and the clean test part."""
    root = request.root("the images folder and the lists of Clothing1M")
    remedy = f"put the lists and images of Clothing1M (asked for as github.com/Cysu/noisy_label says) into {root}"

    def listing(keys: str, label_of: dict[str, int], labels: str) -> Listing:
        images = read_lines(root / keys, remedy)
        unlabelled = next((image for image in images if image not in label_of), None)
        if unlabelled is not None:
            raise UserError(
                f"{root / labels} has no label for {unlabelled} of {root / keys}: get fresh copies of both."
            )
        return Listing([f"{root}/{image}" for image in images], [label_of[image] for image in images])

    classes = tuple(read_lines(root / "category_names_eng.txt", remedy))
    given = dict(read_labels(root / "noisy_label_kv.txt", remedy))
    verified = dict(read_labels(root / "clean_label_kv.txt", remedy))
    noisy = listing("noisy_train_key_list.txt", given, "noisy_label_kv.txt")
    trusted = listing("clean_train_key_list.txt", verified, "clean_label_kv.txt")
    test = listing("clean_test_key_list.txt", verified, "clean_label_kv.txt")
    require_folder(root / "images", remedy)
    is_trusted = torch.arange(len(noisy.paths) + len(trusted.paths)) >= len(noisy.paths)
    return from_files(request, noisy.joined(trusted), test, classes, is_trusted)
