"""Images that stay encoded until they are asked for: decode, scale and keep what fits into memory."""

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from karat.data.blocks import Blocks, Stored, blocks_of
from karat.data.decoding import IMAGE_ENDINGS, Encoded, Unreadable, decode, read_bytes
from karat.data.readers import Array
from karat.errors import UserError, unreadable

Rows = Tensor | list[int] | slice

CACHE_BYTES = 2 * 2**30
APART_BYTES = 2**29  # of decoded images that are needed again and again
_WORKERS = min(8, os.cpu_count() or 1)


class Inputs(Protocol):
    """What training and evaluation need of inputs: a tensor has it, and so have image files and texts."""

    @property
    def shape(self) -> torch.Size:
        """Return the number of examples and the shape of one."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Rows, /) -> Tensor: ...


@runtime_checkable
class Lazy(Inputs, Protocol):
    """Inputs that are read when they are asked for."""

    def subset(self, rows: Rows) -> Any:
        """Return a view of these rows; nothing is read."""


class ImageFiles:
    """Images, in files or encoded in memory, that are decoded when rows are taken: float32 in [-1, 1].

    `size` is the side of the square that they become, or their (height, width): the picture is resized until it fills
    it, and what sticks out is cut off on both sides. `channels` is 3 (RGB) or 1 (grey). `images` is a sequence of
    paths, of encoded images and of images inside larger files. Decoded pixels are kept until `cache_bytes` are full;
    what comes later is decoded each time. Views made by `subset` share the images and the cache.
    """

    def __init__(
        self,
        images: Sequence[Encoded | Path],
        size: int | tuple[int, int],
        cache_bytes: int = CACHE_BYTES,
        channels: int = 3,
    ) -> None:
        height, width = (size, size) if isinstance(size, int) else size
        if height < 1 or width < 1:
            raise UserError(f"The image size is {size}: write 1 or more pixels.")
        self._image_shape = (channels, height, width)
        self._images = images  # shared by all views, as is the cache
        self._rows = torch.arange(len(images))
        self._cache: dict[int, Array] = {}
        self._digests: dict[int, bytes] = {}  # of the images that were checked
        self._cache_places = cache_bytes // (channels * height * width)

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the tensor that all rows would give."""
        return torch.Size((len(self), *self._image_shape))

    @property
    def paths(self) -> list[str]:
        """Return the file of each row; an image that is in no file is called by its number."""
        return [self._name(row) for row in self._rows.tolist()]

    @property
    def images(self) -> list[Encoded]:
        """Return the path or the encoded image of each row."""
        return [self._image(row) for row in self._rows.tolist()]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Rows) -> Tensor:
        wanted = self._rows[rows].tolist()
        missing = [row for row in dict.fromkeys(wanted) if row not in self._cache]
        with _workers() as pool:
            decoded = dict(zip(missing, pool.map(self._decode, missing), strict=True))
        pixels = np.empty((len(wanted), *self._image_shape), dtype=np.float32)
        for place, row in enumerate(wanted):
            pixels[place] = decoded[row] if row in decoded else self._cache[row]
        free = max(0, self._cache_places - len(self._cache))
        self._cache.update((row, decoded[row]) for row in missing[:free])
        return torch.from_numpy(pixels).mul_(1 / 127.5).add_(-1.0)

    def subset(self, rows: Rows) -> "ImageFiles":
        """Return a view of these rows; nothing is decoded."""
        view = object.__new__(ImageFiles)
        view.__dict__ = {**self.__dict__, "_rows": self._rows[rows]}
        return view

    def apart(self) -> "ImageFiles":
        """Return a view of all rows with a cache of its own, for images that every step needs some of."""
        rows = set(self._rows.tolist())
        view = self.subset(slice(None))
        view._cache = {row: pixels for row, pixels in self._cache.items() if row in rows}
        view._cache_places = APART_BYTES // int(np.prod(self._image_shape))
        return view

    def blocks(self) -> Blocks | None:
        """Return which rows are read at once, by number; None where each row is as quickly read as another."""
        return blocks_of(self._image(row) for row in self._rows.tolist())

    def like(self, images: Sequence[Encoded | Path]) -> "ImageFiles":
        """Return other images, brought to the same size and channels."""
        channels, height, width = self._image_shape
        return ImageFiles(images, (height, width), channels=channels)

    def check(self) -> Iterator[tuple[str | None, bytes]]:
        """Decode image by image into the cache; yield why each cannot be read (None: it can) and a hash of it."""

        def look(row: int) -> tuple[str | None, bytes, Array | None]:
            try:
                content = read_bytes(self._image(row))
                digest = hashlib.blake2b(content, digest_size=16).digest()
                return None, digest, decode(content, self._image_shape)
            except Unreadable as error:
                return str(error), b"", None

        for rows in self._rows.split(64 * _WORKERS):
            with _workers() as pool:
                found = list(pool.map(look, rows.tolist()))
            for row, (reason, digest, pixels) in zip(rows.tolist(), found, strict=True):
                if pixels is not None and len(self._cache) < self._cache_places:
                    self._cache[row] = pixels
                self._digests[row] = digest
                yield reason, digest

    def digests(self) -> list[bytes]:
        """Return a hash of each row's content, or of a file's place, size and time where nobody has read it yet."""
        return [self._digests.get(row) or _digest_unread(self._image(row)) for row in self._rows.tolist()]

    def fingerprint(self) -> bytes:
        """Return a hash of the image size and of every file's folder name, name and size; no pixel is read.

        The place of the whole tree does not count: data may move between a run and its resumption. Of an image that is
        encoded in memory, its size and beginning count; of one inside a larger file, its name and mark.
        """
        channels, height, width = self._image_shape
        size = f"{height}" if height == width else f"{height}x{width}"
        digest = hashlib.blake2b(f"{size}{'' if channels == 3 else ' grey'}\n".encode(), digest_size=16)
        for row in self._rows.tolist():
            image = self._image(row)
            if isinstance(image, bytes):
                digest.update(b"%d " % len(image) + image[:256])
                continue
            if isinstance(image, Stored):
                digest.update(f"{image.name} {image.mark}\n".encode(errors="surrogateescape"))
                continue
            try:
                bytes_of_file = os.path.getsize(image)
            except OSError as error:
                raise _missing(image) from error
            folder, name = os.path.split(image)
            digest.update(f"{os.path.basename(folder)}/{name} {bytes_of_file}\n".encode(errors="surrogateescape"))
        return digest.digest()

    def _image(self, row: int) -> Encoded:
        image = self._images[row]
        return str(image) if isinstance(image, Path) else image

    def _name(self, row: int) -> str:
        image = self._image(row)
        if isinstance(image, Stored):
            return image.name
        return image if isinstance(image, str) else f"Image {row}"

    def _decode(self, row: int) -> Array:
        with self._named(row):
            return decode(read_bytes(self._image(row)), self._image_shape)

    @contextmanager
    def _named(self, row: int) -> Iterator[None]:
        """Give the image its name in an error."""
        try:
            yield
        except Unreadable as error:
            image = self._image(row)
            if isinstance(image, str) and isinstance(error.__cause__, FileNotFoundError):
                raise _missing(image) from error
            raise UserError(
                f"{self._name(row)} is not a readable image ({error}): get a fresh copy of it or leave it out."
            ) from error


def image_paths(inputs: Any) -> list[Path] | None:
    """Return the files of images: paths in a list, a column or an array, or texts that all end as images do.

    >>> image_paths(["a.png", "b.JPG"]), image_paths(["a.png", "a text"]), image_paths([Path("scan")])
    ([PosixPath('a.png'), PosixPath('b.JPG')], None, [PosixPath('scan')])
    """
    if not isinstance(inputs, (list, tuple, pd.Series, np.ndarray)) or not len(inputs) or np.ndim(inputs[:1]) != 1:
        return None
    are = all(
        isinstance(one, Path) or (isinstance(one, str) and os.path.splitext(one)[1].lower() in IMAGE_ENDINGS)
        for one in inputs
    )
    return [Path(one) for one in inputs] if are else None


def take(inputs: Inputs, indices: Rows) -> Inputs:
    """Return the inputs at these indices; image files stay undecoded.

    >>> take(torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
    tensor([7, 5])
    """
    return inputs.subset(indices) if isinstance(inputs, Lazy) else inputs[indices]


def row_blocks(inputs: Inputs) -> Blocks | None:
    """Return which rows are read at once; None where each row is as quickly read as another."""
    return inputs.blocks() if isinstance(inputs, ImageFiles) else None


def read_ahead(inputs: Inputs, rows: Iterable[Rows], ahead: int = 2) -> Iterator[Tensor]:
    """Yield the inputs at each of the rows; the next ones are read while the caller works on these.

    >>> [batch.tolist() for batch in read_ahead(torch.tensor([5, 6, 7]), [[0], [2, 1]])]
    [[5], [7, 6]]
    """
    if isinstance(inputs, Tensor):
        yield from (inputs[some] for some in rows)
        return
    waiting: deque[Future[Tensor]] = deque()
    reader = ThreadPoolExecutor(1)
    try:
        for some in rows:
            waiting.append(reader.submit(inputs.__getitem__, some))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        reader.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """Yield threads that decode, which Pillow does outside of Python's lock, without Pillow's remarks on odd files."""
    with warnings.catch_warnings(), ThreadPoolExecutor(_WORKERS) as pool:
        warnings.simplefilter("ignore")
        yield pool


def _digest_unread(image: Encoded) -> bytes:
    if isinstance(image, Stored):  # shards of other data may have the same names and sizes
        try:
            return _digest_unread(image.read())
        except OSError as error:
            raise unreadable(image.name, error) from error
    if isinstance(image, bytes):
        return hashlib.blake2b(image, digest_size=16).digest()
    try:
        found = os.stat(image)
    except OSError as error:
        raise _missing(image) from error
    place = os.path.abspath(image).encode(errors="surrogateescape")
    return hashlib.blake2b(b"%d %d " % (found.st_size, found.st_mtime_ns) + place, digest_size=16).digest()


def _missing(path: str) -> UserError:
    return UserError(f"There is no file {path}: put it there, or leave it out of the list of images.")
