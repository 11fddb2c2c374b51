"""The formats in which benchmarks come: idx files of MNIST, parquet tables of encoded images."""

import gzip
import io
from pathlib import Path

import numpy as np

from karat.data.readers import UNREADABLE, Array
from karat.errors import UserError


def read_idx(path: Path) -> Array:
    """Read unsigned bytes in the idx format of MNIST, plain or with gzip (told by the ending .gz).

    Header: two zero bytes, the type (8: unsigned byte), the number of axes, each length (big-endian int32).
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be unpacked ({error}): get a fresh copy of it.") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise UserError(f"{path} is not an idx file of unsigned bytes: get a fresh copy of it.")
    axes = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=axes, offset=4).astype(np.int64)
    values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes)
    if values.size != shape.prod():
        raise UserError(
            f"{path} holds {values.size} values where its header says {shape.prod()}: get a fresh copy of it."
        )
    return values.reshape(shape)


def read_parquet_images(path: Path) -> tuple[Array, Array]:
    """Read the columns image (encoded bytes, or a dict with "bytes") and label as uint8 NHWC and integers."""
    try:
        from PIL import Image
        from pyarrow import parquet
    except ImportError as error:
        raise UserError(f"Reading {path} needs pyarrow and Pillow: pip install pyarrow pillow.") from error
    try:
        table = parquet.read_table(path)
    except UNREADABLE as error:
        raise UserError(f"{path} is not a parquet file ({error}): get a fresh copy of it.") from error
    for column in ("image", "label"):
        if column not in table.column_names:
            raise UserError(
                f"{path} has no column '{column}', only {', '.join(table.column_names)}: "
                "rename its columns to image and label."
            )
    images: list[Array] = []
    for row, cell in enumerate(table["image"].to_pylist()):
        try:
            encoded = cell["bytes"] if isinstance(cell, dict) else cell
            images.append(np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")))
        except (OSError, KeyError, TypeError) as error:
            raise UserError(f"Row {row} of {path} holds no readable image: leave the row out.") from error
    shapes = sorted({image.shape[:2] for image in images})
    if len(shapes) != 1:
        raise UserError(f"The images of {path} need one common size, and it has {shapes or 'none'}: resize them.")
    labels = table["label"].to_numpy()  # a gap makes it a column of floats
    if labels.dtype.kind not in "iu":
        raise UserError(f"The column label of {path} has type {labels.dtype}: give integers, without gaps.")
    return np.stack(images), labels
