"""Folders of images or texts: ROOT/CLASS/file, or ROOT/train, ROOT/trusted and ROOT/test with the classes in them."""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from karat.data.decoding import IMAGE_ENDINGS, printable
from karat.data.settings import DataSettings
from karat.data.sources.content import Content, EncodedImages, Texts
from karat.data.sources.problems import counted
from karat.data.sources.rows import NOISY, SPLITS, TEST, TRUSTED, Rows, join
from karat.data.text import LONGEST
from karat.errors import UserError, named

TEXT_FILE_ENDINGS = (".txt", ".md")


def read_folder(data: DataSettings) -> Rows:
    """List the images of a folder and of those with trusted and test images, unopened; or read its text files."""
    root = Path(data.name)
    rows = [_split_folder(root)] if is_split(root) else [class_folders(root, NOISY)]
    for extra, part, option in ((data.trusted, TRUSTED, "trusted"), (data.test, TEST, "test")):
        if extra is not None:
            other = Path(extra)
            if not other.is_dir():
                raise UserError(f"There is no folder {extra}: check --data.{option}, which needs one as {root} is.")
            rows.append(class_folders(other, part, prefix=f"{other.name}/"))
    return join(rows)


def is_split(root: Path) -> bool:
    """Return whether the folders in a folder are parts, not classes: all of their names say so, or the main two do."""
    names = {entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    parts = {name for name in names if name.lower() in SPLITS and _has_folders(root / name)}
    return bool(parts) and (parts == names or {"train", "trusted"} <= {name.lower() for name in parts})


def class_folders(root: Path, part: int, prefix: str = "") -> Rows:
    """List the files in the folders of a folder, each of which is a class; `prefix` comes before their names.

    They are images or, where there is none, texts.
    """
    paths: list[str] = []
    labels: list[str] = []
    endings = endings_in(root)
    others: Counter[str] = Counter()
    empty = []
    for name in sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith(".")):
        found = files_in(root / name, endings, others)
        paths += found
        labels += [printable(name)] * len(found)
        empty += [name] * (not found)
    loose = sum(1 for entry in os.scandir(root) if entry.is_file() and _ending(entry.name) in endings)
    if not paths:
        raise UserError(
            f"{root} has no folders of images or texts ({', '.join(TEXT_FILE_ENDINGS)}): put the files of each class "
            "into a folder with the name of the class."
        )
    notes = _notes(root, "texts" if endings is TEXT_FILE_ENDINGS else "images", others, empty)
    if loose:
        notes.append(f"Not used, since they are in no class folder: {counted(loose, 'file')} in {root} itself.")
    names = [prefix + printable(os.path.relpath(path, root)) for path in paths]
    count = len(paths)
    return Rows(
        str(root),
        labels,
        np.full(count, part),
        np.arange(count),
        file_content(paths, endings),
        names,
        notes=tuple(map(printable, notes)),
    )


def endings_in(root: Path) -> Collection[str]:
    """Return which endings count in a folder: those of images or, where there is no image, of texts."""
    others: Counter[str] = Counter()
    images = files_in(root, IMAGE_ENDINGS, others)
    return TEXT_FILE_ENDINGS if not images and any(ending in TEXT_FILE_ENDINGS for ending in others) else IMAGE_ENDINGS


def file_content(paths: Sequence[str], endings: Collection[str]) -> Content:
    """Return images by their paths, or texts that are read at once."""
    if endings is not TEXT_FILE_ENDINGS:
        return EncodedImages(paths)
    texts, unreadable = [], []
    for path in paths:
        try:
            texts.append(_text_of(Path(path)))
            unreadable.append("")
        except (OSError, UnicodeDecodeError) as error:
            texts.append("")
            unreadable.append(f"it is not text in UTF-8 ({getattr(error, 'reason', None) or error})")
        except UserError as error:
            texts.append("")
            unreadable.append(str(error))
    return Texts(texts, unreadable)


def _text_of(path: Path) -> str:
    if not path.is_file():
        raise UserError("it is no file but a pipe, a device or a link to nowhere")
    if path.stat().st_size > 4 * LONGEST + 3:  # a character has four bytes at most, and a mark may stand before them
        raise UserError(f"it has more than {LONGEST:,} characters")
    return path.read_text(encoding="utf-8-sig")


def files_in(folder: Path, endings: Collection[str], others: Counter[str]) -> list[str]:
    """Return the files below a folder whose ending is one of these, sorted; count the endings of `others`."""
    found, seen = [], set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        place = os.path.realpath(parent)
        if place in seen:  # a link to a folder above it
            folders.clear()
            continue
        seen.add(place)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.startswith("."):
                continue
            if _ending(name) in endings:
                found.append(os.path.join(parent, name))
            else:
                others[_ending(name) or name] += 1
    return sorted(found)


def _split_folder(root: Path) -> Rows:
    parts, ignored = [], []
    for name in sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        if name.lower() in SPLITS:
            parts.append(class_folders(root / name, SPLITS[name.lower()], prefix=f"{printable(name)}/"))
        else:
            ignored.append(name)
    # The noisy images come first, so that their numbers do not change when others are verified.
    rows = join(sorted(parts, key=lambda part: int(part.parts[0])))
    notes = rows.notes
    if ignored:
        notes += (f"Not used, since train and trusted are beside them: the folders {printable(named(ignored))}.",)
    return replace(rows, source=str(root), notes=notes)


def _has_folders(folder: Path) -> bool:
    return any(entry.is_dir() and not entry.name.startswith(".") for entry in folder.iterdir())


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _notes(root: Path, what: str, others: Counter[str], empty: list[str]) -> list[str]:
    notes = []
    if others:
        kinds = named([f"{count:,} {ending}" for ending, count in others.most_common()])
        notes.append(f"Not used, since their endings are not those of {what}: {kinds} in {root}.")
    if empty:
        notes.append(f"Not used, since they have no {what}: the folders {named(empty)} of {root}.")
    return notes
