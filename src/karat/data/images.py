"""Images that stay in their files until they are asked for: decode, scale and keep what fits into memory."""

import hashlib
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from karat.data.readers import Array
from karat.errors import UserError

Rows = Tensor | list[int] | slice

CACHE_BYTES = 2 * 2**30
_WORKERS = min(8, os.cpu_count() or 1)
_ORIENTATION_TAG = 0x0112
_UPRIGHT = {  # the orientation that a camera noted -> what turns the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow raises on damaged files; a damaged PNG is a SyntaxError, an absurdly large one a DecompressionBombError.
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, Image.DecompressionBombError)


class Inputs(Protocol):
    """What training and evaluation need of inputs: a tensor has it, and so have image files."""

    @property
    def shape(self) -> torch.Size:
        """Return the number of examples and the shape of one."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Rows, /) -> Tensor: ...


class ImageFiles:
    """Image files that are decoded when rows are taken: float32 RGB in [-1, 1], `size` pixels square.

    The shorter side is resized to `size`, the centre is cut out. Decoded pixels are kept until `cache_bytes` are full;
    what comes later is decoded each time. Views made by `subset` share the paths and the cache.
    """

    def __init__(self, paths: Sequence[str | Path], size: int, cache_bytes: int = CACHE_BYTES) -> None:
        if size < 1:
            raise UserError(f"The image size is {size}: write 1 or more pixels.")
        self.size = size
        self._paths = [str(path) for path in paths]  # shared by all views, as is the cache
        self._rows = torch.arange(len(self._paths))
        self._cache: dict[int, Array] = {}
        self._cache_places = cache_bytes // (3 * size * size)

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the tensor that all rows would give."""
        return torch.Size((len(self), 3, self.size, self.size))

    @property
    def paths(self) -> list[str]:
        """Return the file of each row."""
        return [self._paths[row] for row in self._rows.tolist()]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Rows) -> Tensor:
        wanted = self._rows[rows].tolist()
        missing = [row for row in dict.fromkeys(wanted) if row not in self._cache]
        with ThreadPoolExecutor(_WORKERS) as pool:  # Pillow decodes outside of Python's lock
            decoded = dict(zip(missing, pool.map(self._decode, missing), strict=True))
        pixels = np.empty((len(wanted), 3, self.size, self.size), dtype=np.float32)
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

    def fingerprint(self) -> bytes:
        """Return a hash of the image size and of every file's folder name, name and size; no pixel is read.

        The place of the whole tree does not count: data may move between a run and its resumption.
        """
        digest = hashlib.blake2b(f"{self.size}\n".encode(), digest_size=16)
        for path in self.paths:
            try:
                bytes_of_file = os.path.getsize(path)
            except OSError as error:
                raise _missing(path) from error
            folder, name = os.path.split(path)
            digest.update(f"{os.path.basename(folder)}/{name} {bytes_of_file}\n".encode(errors="surrogateescape"))
        return digest.digest()

    def _decode(self, row: int) -> Array:
        path = self._paths[row]
        try:
            with Image.open(path) as image:
                image.draft("RGB", (self.size, self.size))  # a large JPEG is decoded at a fraction of its size
                turn = _UPRIGHT.get(_orientation(image))
                square = ImageOps.fit(_rgb(image), (self.size, self.size), Image.Resampling.BILINEAR)
        except FileNotFoundError as error:
            raise _missing(path) from error
        except _DAMAGED as error:
            raise UserError(
                f"{path} is not a readable image ({error}): get a fresh copy of it or leave it out."
            ) from error
        upright = np.asarray(square if turn is None else square.transpose(turn))
        return np.ascontiguousarray(upright.transpose(2, 0, 1))  # channels first


def take(inputs: Inputs, indices: Tensor) -> Inputs:
    """Return the inputs at these indices; image files stay undecoded.

    >>> take(torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
    tensor([7, 5])
    """
    return inputs.subset(indices) if isinstance(inputs, ImageFiles) else inputs[indices]


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    # Pictures from the web carry all kinds of broken notes; without a readable one they count as upright.
    except (*_DAMAGED, TypeError, KeyError):
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow warns where a transparent palette becomes RGB at once
    if image.mode.startswith("I"):  # 16 bits of grey, which Pillow would clip at 255
        image = Image.fromarray((np.asarray(image).astype(np.int32) >> 8).clip(0, 255).astype(np.uint8))
    return image.convert("RGB")


def _missing(path: str) -> UserError:
    return UserError(f"There is no file {path}: put it there, or leave it out of the list of images.")
