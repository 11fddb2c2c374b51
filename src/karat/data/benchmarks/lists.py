"""Read what large datasets come with: lists of files, tables of labels, folders of one class each."""

from pathlib import Path

from karat.data.examples import Listing
from karat.errors import UserError
from karat.files.required import require

_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")


def read_lines(path: Path, remedy: str) -> list[str]:
    """Read the lines of a text file, without empty ones."""
    require(path, remedy)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except ValueError as error:
        raise UserError(f"{path} is not a text file ({error}): get a fresh copy of it.") from error
    return [line.strip() for line in lines if line.strip()]


def read_pairs(path: Path, remedy: str) -> list[tuple[str, str]]:
    """Read lines of two words: an image and its label. A name may hold spaces, a label not."""
    pairs = []
    for number, line in enumerate(read_lines(path, remedy), start=1):
        image, *label = line.rsplit(maxsplit=1)
        if not label:
            raise UserError(f"Line {number} of {path} is '{line}': write an image and its label.")
        pairs.append((image, label[0]))
    return pairs


def read_labels(path: Path, remedy: str) -> list[tuple[str, int]]:
    """Read lines of an image and the number of its class."""
    pairs = []
    for image, label in read_pairs(path, remedy):
        if not label.isdecimal():
            raise UserError(f"{path} gives {image} the label '{label}': write the number of its class.")
        pairs.append((image, int(label)))
    return pairs


def require_folder(path: Path, remedy: str) -> Path:
    """Return the folder, or raise a UserError with the remedy where it is missing."""
    if not path.is_dir():
        raise UserError(f"There is no folder {path}: {remedy}.")
    return path


def image_names(folder: Path) -> list[str]:
    """Return the names of the images in a folder, sorted."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name.lower().endswith(_ENDINGS))


def listed_folders(folder: Path, names: list[str], remedy: str, first: int | None = None) -> Listing:
    """List the images of folders that are named after the classes, or the `first` of each in sorted order."""
    listing = Listing([], [])
    for label, name in enumerate(names):
        images = image_names(require_folder(folder / name, remedy))
        if not images or (first is not None and len(images) < first):
            raise UserError(f"{folder / name} has {len(images)} images where {first or 1} are needed: {remedy}.")
        listing.paths.extend(str(folder / name / image) for image in images[:first])
        listing.labels.extend([label] * len(images[:first]))
    return listing
