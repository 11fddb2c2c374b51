"""One encoded picture, of any size and mode, becomes pixels: upright, without transparency, in grey or RGB."""

import io
import os
import stat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from karat.data.blocks import Stored
from karat.data.readers import Array

Encoded = str | bytes | Stored  # the path of a file, the content of one, or a part of a larger file

IMAGE_ENDINGS = frozenset(
    f".{ending}"
    for ending in (
        *("avif", "bmp", "dib", "gif", "heic", "heif", "jfif", "jp2", "jpe", "jpeg", "jpg", "mpo"),
        *("pbm", "pgm", "png", "pnm", "ppm", "tga", "tif", "tiff", "webp"),
    )
)
_FORMATS = (
    *("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "MPO", "DIB", "TGA", "ICO", "JPEG2000", "AVIF"),
    *("HEIF", "HEIC"),  # where pillow-heif is installed and was asked to
)
LARGEST_FILE = 2**30
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")  # and all kinds of I;16
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
_SIDEWAYS = (5, 6, 7, 8)  # height and width change places


class Header(NamedTuple):
    """What a picture is, upright: height, width, and whether its mode is one of greys."""

    height: int
    width: int
    grey: bool


class Unreadable(Exception):
    """A picture cannot be decoded; the text says why, without its name."""


def read_bytes(image: Encoded) -> bytes:
    """Return the encoded picture; raise Unreadable where there is none."""
    if isinstance(image, bytes):
        return image
    if isinstance(image, Stored):
        try:
            return image.read()
        except OSError as error:
            raise Unreadable(f"its file cannot be read: {error.strerror or error}") from error
    if not image:
        raise Unreadable("the row names no file")
    try:
        _check_file(image)
        return Path(image).read_bytes()
    except FileNotFoundError as error:
        if image.startswith(("http://", "https://", "s3://", "gs://")):
            raise Unreadable("it is an address in the network, and only files are read") from error
        raise Unreadable("there is no such file") from error
    except (OSError, ValueError) as error:  # a ValueError is a path with a zero byte
        raise Unreadable(f"the file cannot be read: {getattr(error, 'strerror', None) or error}") from error


def decode(content: bytes, shape: tuple[int, int, int]) -> Array:
    """Return the pixels as uint8 of this (channels, height, width): filled by the picture, what sticks out cut off."""
    channels, height, width = shape
    with _opened(content) as image:
        orientation = _orientation(image)
        size = (height, width) if orientation in _SIDEWAYS else (width, height)
        image.draft("RGB" if channels == 3 else "L", size)  # a large JPEG is decoded at a fraction of its size
        plain = _plain(image)
        fitted = ImageOps.fit(plain.convert("RGB" if channels == 3 else "L"), size, Image.Resampling.BILINEAR)
        turn = _UPRIGHT.get(orientation)
        upright = np.asarray(fitted if turn is None else fitted.transpose(turn))
    return np.ascontiguousarray(upright[None] if channels == 1 else upright.transpose(2, 0, 1))


def picture(content: bytes) -> Image.Image:
    """Return the picture at its full size, upright, in mode L or RGB."""
    with _opened(content) as image:
        turn = _UPRIGHT.get(_orientation(image))
        plain = _plain(image).copy()
    return plain if turn is None else plain.transpose(turn)


def read_header(image: Encoded) -> Header:
    """Return size and kind without reading the rest; most damage shows only when the picture is decoded."""
    with _opened(read_bytes(image) if isinstance(image, Stored) else image) as opened:
        return _header(opened)


def _header(image: Image.Image) -> Header:
    height, width = image.height, image.width
    if _orientation(image) in _SIDEWAYS:
        height, width = width, height
    return Header(height, width, image.mode in _GREY_MODES or image.mode.startswith("I;"))


def is_grey(content: bytes) -> bool:
    """Return whether all pixels are grey, whatever the mode of the picture."""
    image = picture(content)
    if image.mode == "L":
        return True
    pixels = np.asarray(image)
    return bool((pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all())


class _opened:
    """Open an encoded picture; whatever goes wrong in the body is Unreadable, in words that name no Python object."""

    def __init__(self, image: str | bytes) -> None:
        self._encoded = image

    def __enter__(self) -> Image.Image:
        try:
            if isinstance(self._encoded, str):
                _check_file(self._encoded)
            source = io.BytesIO(self._encoded) if isinstance(self._encoded, bytes) else self._encoded
            self._image = Image.open(source, formats=_formats())
        except Exception as error:
            raise self._unreadable(error) from error
        return self._image

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._image.close()
        # Pillow's readers of a dozen formats raise all kinds of errors on damaged files, SyntaxError among them.
        if isinstance(error, Exception):
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> Unreadable:
        start = self._encoded[:200].lstrip().lower() if isinstance(self._encoded, bytes) else b""
        if isinstance(error, Unreadable):
            return error
        if not self._encoded:
            return Unreadable("the file is empty")
        if start.startswith(b"version https://git-lfs"):
            return Unreadable("it is a pointer of Git LFS, not the image: run git lfs pull")
        if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
            return Unreadable("it is a web page or a drawing in XML, not an image of pixels")
        if isinstance(error, Image.DecompressionBombError):
            return Unreadable(f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6} million pixels")
        if isinstance(error, UnidentifiedImageError):
            return Unreadable("it is not in a format of images that Pillow can read")
        return Unreadable(" ".join(str(error).split()) or type(error).__name__)


def _check_file(path: str) -> None:
    """Refuse what can be read without end, such as a pipe or a device."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("it is no file but a folder, a pipe or a device")
    if found.st_size > LARGEST_FILE:
        raise Unreadable(f"it has more than {LARGEST_FILE // 2**20} MB")


def _formats() -> list[str]:
    """Return the formats of pixels that Pillow reads by itself: for EPS it would run another program."""
    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # pictures from the web carry all kinds of broken notes; without a readable one they are upright
        return 1


def _plain(image: Image.Image) -> Image.Image:
    """Return the picture in mode L or RGB, on white where it is transparent."""
    mode = image.mode
    if mode == "F" or mode.startswith("I"):
        return Image.fromarray(_eight_bits(np.asarray(image), mode))
    if mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")  # in one step: Pillow warns where a transparent palette becomes RGB at once
        ground = Image.new("RGBA", image.size, (255, 255, 255, 255))
        ground.alpha_composite(image)
        return ground.convert("L" if mode in ("LA", "La", "L") else "RGB")
    return image.convert("L" if mode in ("1", "L") else "RGB")


def _eight_bits(pixels: Array, mode: str) -> Array:
    """Bring deep greys to 8 bits: 16 bits lose the lower half, others go up to 1, 255, 65,535 or their own maximum."""
    if mode.startswith("I;16"):
        return (pixels.astype(np.uint16) >> 8).astype(np.uint8)
    values = np.nan_to_num(pixels.astype(np.float64))
    top = values.max(initial=0)
    if mode == "F" and top <= 1:
        values = values * 255
    elif top > 255:
        values = values / (257 if top <= 65_535 else top / 255)
    return values.round().clip(0, 255).astype(np.uint8)


def printable(path: str | os.PathLike[str]) -> str:
    """Return a path as text that every file can hold; bytes that are no UTF-8 become question marks.

    >>> printable("caf\\udce9.png")
    'caf\\ufffd.png'
    """
    return os.fspath(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
