"""Tar files in the layout of WebDataset: `key.jpg` with `key.cls` or `key.json`. Nothing is extracted or followed."""

import json
import tarfile
from array import array
from typing import IO, Any

import numpy as np
import pandas as pd

from karat.data.blocks import Block, KeptBlocks, Stored
from karat.data.decoding import IMAGE_ENDINGS, LARGEST_FILE, printable
from karat.data.examples import Skipped
from karat.data.readers import Array
from karat.data.settings import DataSettings
from karat.data.sources.problems import DamagedShard
from karat.data.sources.table_files import Table
from karat.errors import named
from karat.files.addresses import PlacedFile

IMAGE = "image"  # the column that the images of a tar file are
BLOCK_BYTES = 2**20  # of a file that is far away, read at once
LARGEST_NOTE = 2**20  # bytes of a label or of a JSON object
_LABEL, _OBJECT = "cls", "json"
_END = bytes(tarfile.BLOCKSIZE)


def read_tar(file: PlacedFile, data: DataSettings, kept: KeptBlocks) -> tuple[Table, list[Skipped]]:
    """List the rows of a tar file, and those whose label cannot be read; labels are read, images are not."""
    members = _Members((data.label_column, data.id_column, "trusted", "split"))
    try:
        with file.opened() as opened, tarfile.open(fileobj=opened, mode="r:") as archive:
            _walk(archive, opened, members)
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        raise DamagedShard(f"it is damaged or no tar file ({' '.join(str(error).split())})") from error
    if not members.keys:
        raise DamagedShard("it has no images, such as key.jpg beside key.cls")
    unreadable = members.unreadable()
    bad = [Skipped(f"{file.name}/{printable(key)}", reason) for key, reason in unreadable.items()]
    rows = [row for row, key in enumerate(members.keys) if key not in unreadable]
    images = TarImages(file, members, rows, kept)
    frame = pd.DataFrame(members.columns(rows), index=range(len(rows)), dtype=object)
    return Table(file.name, frame, {IMAGE: images}, notes=members.notes()), bad


class TarImages:
    """The images of a tar file, read at their places; those of a file far away with their neighbours."""

    def __init__(self, file: PlacedFile, members: "_Members", rows: list[int], kept: KeptBlocks) -> None:
        self._file, self._kept = file, kept
        self._keys = [printable(members.keys[row]) for row in rows]
        self._starts: Array = np.array(members.starts, dtype=np.int64)[rows]
        self._sizes: Array = np.array(members.sizes, dtype=np.int64)[rows]
        _, firsts, self._blocks = np.unique(self._starts // BLOCK_BYTES, return_index=True, return_inverse=True)
        lasts = np.append(firsts, len(rows))[1:] - 1
        self._begins, self._ends = self._starts[firsts], self._starts[lasts] + self._sizes[lasts]

    def image(self, row: int, folder: str) -> Stored:
        """Return the image of a row, unread."""
        start, size = int(self._starts[row]), int(self._sizes[row])
        name, mark, file = f"{self._file.name}/{self._keys[row]}", str(size), self._file
        if not file.is_far:
            return Stored(name, mark, lambda: file.part(start, size))
        begin, end = (int(places[self._blocks[row]]) for places in (self._begins, self._ends))
        block = Block((file.path, begin), end - begin, lambda: file.part(begin, end - begin), self._kept)
        return Stored(name, mark, lambda: block.content()[start - begin : start - begin + size], block)

    def written(self) -> list[str]:
        """Return the keys."""
        return self._keys


class _Members:
    """What a tar file holds: keys, places and sizes of its images, and what is written beside them.

    `names` are those of the cells that are read; the first is the label's.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.keys: list[str] = []
        self.starts, self.sizes = array("q"), array("q")
        self._others: set[str] = set()  # endings that mean nothing here
        self._damaged: dict[str, str] = {}  # keys whose label or object cannot be read, and why
        self._cells: dict[str, dict[str, Any]] = {}
        self._endings: dict[str, str] = {}  # of the image of each key
        self._notes: set[tuple[str, str]] = set()

    def add(self, member: tarfile.TarInfo, opened: IO[bytes]) -> None:
        """Take a member in: an image is noted, a label is read, all else is counted or refused."""
        if member.isdir():
            return
        _check(member)
        folder, _, file = member.name.rpartition("/")
        stem, _, ending = file.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        if ending in (_LABEL, _OBJECT) and stem:
            self._add_note(key, ending, member, opened)
        elif f".{ending.lower()}" in IMAGE_ENDINGS and stem:
            self._add_image(key, ending, member)
        else:
            self._others.add(f".{ending}")

    def unreadable(self) -> dict[str, str]:
        """Return the keys that are no row, and why."""
        alone = (key for key, _ in sorted(self._notes) if key not in self._endings)
        return {**self._damaged, **dict.fromkeys(alone, "there is no image beside its label")}

    def notes(self) -> tuple[str, ...]:
        """Return what the user should know of members that are not used."""
        if not self._others:
            return ()
        return (f"Not used, since they are no images and no labels: files on {named(sorted(self._others))} in shards.",)

    def columns(self, rows: list[int]) -> dict[str, list[Any]]:
        """Return the cells of these rows, column by column: the label, and what is said of some row."""
        cells = [self._cells.get(self.keys[row], {}) for row in rows]
        label, *others = self._names
        said = [label, *(name for name in others if any(name in of_row for of_row in cells))]
        return {name: [of_row.get(name, "") for of_row in cells] for name in said}

    def _add_image(self, key: str, ending: str, member: tarfile.TarInfo) -> None:
        if key in self._endings:
            both = named([f"{key}.{self._endings[key]}", member.name])
            raise DamagedShard(f"two images in it have one key ({both}): give each a key of its own")
        self._endings[key] = ending
        self.keys.append(key)
        self.starts.append(member.offset_data)
        self.sizes.append(member.size)

    def _add_note(self, key: str, ending: str, member: tarfile.TarInfo, opened: IO[bytes]) -> None:
        if (key, ending) in self._notes:
            raise DamagedShard(f"{printable(member.name)} is in it twice: give each key one label")
        self._notes.add((key, ending))
        opened.seek(member.offset_data)
        try:
            if member.size > LARGEST_NOTE:
                raise ValueError(f"it has more than {LARGEST_NOTE // 2**20} MB")
            text = opened.read(member.size).decode("utf-8-sig")
            found = {self._names[0]: text.strip()} if ending == _LABEL else self._cells_of(text)
        except (ValueError, RecursionError) as error:
            what = "label of text in UTF-8" if ending == _LABEL else "JSON object with a label"
            self._damaged[key] = f"its .{ending} is no {what} ({' '.join(str(error).split())})"
            return
        cells = self._cells.get(key, {})
        self._cells[key] = {**cells, **found} if ending == _OBJECT else {**found, **cells}  # an object says more

    def _cells_of(self, text: str) -> dict[str, Any]:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("it begins with no brace")
        found = {name: values[name] for name in self._names if values.get(name) is not None}
        for name, value in found.items():
            if not isinstance(value, str | int | float):
                raise ValueError(f"{name} is no text and no number")
        return found


def _walk(archive: tarfile.TarFile, opened: IO[bytes], members: _Members) -> None:
    """Take all members in, header by header, to the end mark."""
    place = 0
    while (member := archive.next()) is not None:
        if archive.offset <= place:  # some versions of tarfile would go round and round
            raise tarfile.ReadError(f"the file behind byte {place:,} has no size")
        place = archive.offset
        archive.members = []  # type: ignore[attr-defined]  # it would keep all that came before
        members.add(member, opened)
    opened.seek(archive.offset)
    if opened.read(tarfile.BLOCKSIZE) != _END:  # damage in the middle is an end for tarfile
        raise tarfile.ReadError(f"no further file and no end mark at byte {archive.offset:,}")


def _check(member: tarfile.TarInfo) -> None:
    """Refuse what is no plain file inside the archive."""
    name = printable(member.name)
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise DamagedShard(f"it names a file outside of it ({name}): write names that stay inside")
    if not member.isreg() or member.issparse():
        raise DamagedShard(f"{name} in it is a link, a device or the like: put the file itself in its place")
    if member.size > LARGEST_FILE:
        raise DamagedShard(f"{name} in it has more than {LARGEST_FILE // 2**20} MB: leave it out")
