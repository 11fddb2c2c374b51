"""What a dataset is, and how it is built: from whole arrays, or from lists of image files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from karat.data.cells import Cells
from karat.data.images import ImageFiles, Inputs, take
from karat.data.modality import FEATURES, IMAGES, Modality, modality_of
from karat.data.noise.labels import check_labels
from karat.data.readers import Array
from karat.data.schema import Schema, array_schema
from karat.data.settings import DRAWN_PER_CLASS
from karat.errors import UserError
from karat.noise_matrix import ClassMap

InputsT = TypeVar("InputsT", bound=Inputs)

Part = tuple[Array, Array]  # inputs, labels
IMAGE_SIZE = 224  # what networks for ImageNet are trained at; Inception's size is 299


@dataclass(frozen=True, eq=False)
class Examples(Generic[InputsT]):
    """Inputs and labels, example by example; the inputs are a tensor or image files."""

    inputs: InputsT
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Tensor) -> "Examples":
        """Return the examples at these indices; image files stay undecoded."""
        return Examples(take(self.inputs, indices), self.labels[indices])

    def batch(self, indices: Tensor) -> "Examples[Tensor]":
        """Return the examples at these indices with their inputs as a tensor; image files are decoded."""
        return Examples(self.inputs[indices], self.labels[indices])


class Skipped(NamedTuple):
    """A row that was left out because it cannot be read: what the user calls it, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Dataset:
    """A train and a test part.

    `flip`: a mirrored image means the same, so augmentation may mirror. `class_map` is the dataset's usual asymmetric
    noise. `curated`: the train labels are known to be right, as those of a benchmark are and those of a user are not.
    `rows` are the places of the train examples in what was loaded, in order, and `trusted` says which of them the user
    verified. `names` are what the user calls the train examples (an id or a path), None where only their rows do;
    `test_names` likewise. The test part may be empty: then there is no test accuracy. `schema` says how inputs are made
    from what the user brings, `skipped` what could not be read, `notes` what the user should know about the data.
    `image_size` is the side of the images where it was chosen for this machine, not given. `cells` are what the user
    wrote about the rows, for people to look at; None for images. `featured`: the inputs of the test part, and those of
    the task, are features that a pretrained network made of the images.
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
    names: tuple[str, ...] | None = None
    test_names: tuple[str, ...] | None = None
    schema: Schema | None = None
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    image_size: int | None = None
    cells: Cells | None = None
    featured: bool = False

    @property
    def modality(self) -> Modality:
        """Return what kind of thing one input is."""
        if self.featured:
            return FEATURES
        return modality_of(tuple(self.train.inputs.shape[1:])) if self.schema is None else self.schema.modality

    def names_of(self, rows: Tensor) -> tuple[str, ...]:
        """Return what the user calls the train examples at these places of the data: a name, or else the place."""
        if self.names is None:
            return tuple(str(row) for row in rows.tolist())
        return tuple(self.names[place] for place in torch.searchsorted(self.rows, rows).tolist())


@dataclass(frozen=True)
class Request:
    """What is asked of a loader: where the files are, and how to read them."""

    name: str
    folder: Path | None = None
    image_size: int | None = None
    trusted_per_class: int = DRAWN_PER_CLASS
    download: bool = False

    def root(self, content: str) -> Path:
        """Return the full path of the folder, which must be given; say what belongs into it."""
        if self.folder is None:
            raise UserError(
                f"Dataset '{self.name}' comes without a default folder: set the path to the folder with {content}."
            )
        return self.folder.absolute()

    def refuse_folder(self) -> None:
        """Raise a UserError where a folder is given."""
        if self.folder is not None:
            raise UserError(f"Dataset '{self.name}' is not read from a folder: leave the path out.")


class Listing(NamedTuple):
    """Image files and their labels."""

    paths: list[str]
    labels: list[int]

    def joined(self, other: "Listing") -> "Listing":
        """Return both, one after the other."""
        return Listing(self.paths + other.paths, self.labels + other.labels)


def from_arrays(name: str, train: Part, test: Part, classes: tuple[str, ...], flip: bool) -> Dataset:
    """Build a dataset in memory; inputs are scaled, labels checked."""
    schema = array_schema(train[0], test[0])
    parts = []
    for part, (inputs, part_labels) in (("train", train), ("test", test)):
        labels = torch.from_numpy(part_labels.astype(np.int64))
        check_labels(labels, len(classes), f"The {part} labels of {name}")
        if len(inputs) != len(labels):
            raise UserError(
                f"The {part} part of {name} has {len(inputs)} inputs and {len(labels)} labels: "
                "give one label per input."
            )
        parts.append(Examples(schema.inputs_of(inputs), labels))
    rows = torch.arange(len(parts[0]))
    cells = None if schema.modality is IMAGES else Cells(train[0], rows.numpy())
    return Dataset(name, parts[0], parts[1], classes, flip, rows, schema=schema, cells=cells)


def from_files(
    request: Request,
    train: Listing,
    test: Listing,
    classes: tuple[str, ...],
    trusted: Tensor | None = None,
    curated: bool = False,
) -> Dataset:
    """Build a dataset of image files; nothing is decoded. Mirrored photographs mean the same."""
    # One ImageFiles with two views, so that the limit of its cache holds for both parts together.
    size = IMAGE_SIZE if request.image_size is None else request.image_size
    files = ImageFiles(train.paths + test.paths, size)
    border = len(train.paths)
    parts = []
    for part, listing, rows in (("train", train, slice(0, border)), ("test", test, slice(border, None))):
        if not listing.paths:
            raise UserError(f"The {part} part of {request.name} lists no image: check its files.")
        labels = torch.tensor(listing.labels, dtype=torch.int64)
        check_labels(labels, len(classes), f"The {part} labels of {request.name}")
        parts.append(Examples(files.subset(rows), labels))
    return Dataset(
        request.name,
        parts[0],
        parts[1],
        classes,
        flip=True,
        rows=torch.arange(border),
        curated=curated,
        trusted=trusted,
        schema=Schema((3, size, size)),
    )
