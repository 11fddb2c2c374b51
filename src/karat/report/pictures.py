"""How an example is shown: as a thumbnail on a sheet of many, or as the values of a feature row."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[Any]
Thumbnail = Callable[[Sequence[int]], Sequence[Array]]

COLUMNS = 10
SHEET = COLUMNS * COLUMNS  # thumbnails a file: 50,000 of them are 500 files, of which a screen needs one or two
LARGEST = 160  # pixels; a sheet of such photographs has about 600 kB
LOSSLESS = 64  # images up to this size are PNG: JPEG would blur what little there is
SHOWN_COLUMNS = 30  # of a feature row
LONGEST = 2_000  # characters of a cell
LONGEST_TEXT = 20_000  # of a text, which is there to be read


@dataclass(frozen=True)
class FeatureRows:
    """What a table says about its rows: the names of all columns, and the cells of rows, by `index`, in the first.

    `texts`: the one column holds texts, which are shown as such.
    """

    names: Sequence[str]
    cells: Callable[[Sequence[int], int], Sequence[Sequence[str]]]
    texts: bool = False

    def shown(self, rows: Sequence[int]) -> list[list[str]]:
        """Return the first columns of these rows; cells that would fill the page are cut off."""
        longest = LONGEST_TEXT if self.texts else LONGEST
        return [[cut(cell, longest) for cell in row] for row in self.cells(rows, SHOWN_COLUMNS)]


@dataclass(frozen=True)
class Sheets:
    """The layout that all sheets share: the files in order, and the pixels of one thumbnail."""

    files: list[str]
    width: int
    height: int


def cut(cell: str, longest: int = LONGEST) -> str:
    """Return a cell as it is, or its beginning and its length where it is too long to be looked at.

    >>> cut("1234567"), cut("007"), cut("x" * 10_000)[-25:]
    ('1234567', '007', 'xxx … (10,000 characters)')
    """
    return cell if len(cell) <= longest else f"{cell[:longest]} … ({len(cell):,} characters)"


def write_sheets(folder: Path, rows: Sequence[int], thumbnail: Thumbnail) -> Sheets:
    """Write the rows' thumbnails as sheets of 100 under names of our own; the first sheet settles the size of all."""
    files: list[str] = []
    width = height = 0
    for start in range(0, len(rows), SHEET):
        images = [fitted(image) for image in thumbnail(rows[start : start + SHEET])]
        if not files:
            height, width = (max(image.shape[side] for image in images) for side in (0, 1))
        small = max(width, height) <= LOSSLESS
        files.append(f"sheet-{len(files):04d}.{'png' if small else 'jpg'}")
        Image.fromarray(sheet(images, width, height)).save(folder / files[-1], quality=85)  # which PNG does not heed
    return Sheets(files, width, height)


def sheet(images: Sequence[Array], width: int, height: int) -> Array:
    """Return 10 x 10 tiles with the images in their middle.

    A rim of one pixel repeats the edge of each tile, so that an enlarged one shows nothing of its neighbours.
    """
    coloured = any(image.ndim == 3 for image in images)
    tiles = np.zeros((SHEET, height, width, 3 if coloured else 1), dtype=np.uint8)
    for tile, image in zip(tiles, images, strict=False):
        kept = image[:height, :width]
        top, left = (height - kept.shape[0]) // 2, (width - kept.shape[1]) // 2
        tile[top : top + kept.shape[0], left : left + kept.shape[1]] = kept if kept.ndim == 3 else kept[..., None]
    rimmed = np.pad(tiles, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    grid = rimmed.reshape(COLUMNS, COLUMNS, height + 2, width + 2, -1).swapaxes(1, 2)
    pixels = grid.reshape(COLUMNS * (height + 2), COLUMNS * (width + 2), -1)
    return pixels if coloured else pixels[..., 0]


def data_address(image: Array) -> str:
    """Return an image as a data: address for the page itself."""
    picture, kept = Image.fromarray(fitted(image)), io.BytesIO()
    small = max(picture.size) <= LOSSLESS
    picture.save(kept, "png" if small else "jpeg")
    return f"data:image/{'png' if small else 'jpeg'};base64,{base64.b64encode(kept.getvalue()).decode()}"


def fitted(image: Array) -> Array:
    """Return a thumbnail: never larger than the image, nor than 160 pixels."""
    image = np.ascontiguousarray(image, dtype=np.uint8)
    if max(image.shape[:2]) <= LARGEST:
        return image
    picture = Image.fromarray(image)
    picture.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    return np.asarray(picture)
