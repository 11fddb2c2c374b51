import gzip
import io
import struct
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image
from pyarrow import parquet, table

from karat.data.benchmarks.array_files import read_idx, read_parquet_images
from karat.errors import UserError


def write_idx(file, values):
    content = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}i", *values.shape) + values.tobytes()
    file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["values-idx3-ubyte", "values-idx3-ubyte.gz"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=npst.arrays(np.uint8, npst.array_shapes(max_dims=3), elements=st.integers(0, 255)))
def test_idx_round_trip(tmp_path, name, values):
    write_idx(tmp_path / name, values)
    np.testing.assert_array_equal(read_idx(tmp_path / name), values)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("short", b"\x00\x00", "not an idx file of unsigned bytes: get a fresh copy"),
        ("floats", b"\x00\x00\x0d\x01\x00\x00\x00\x00", "not an idx file of unsigned bytes"),
        ("header", b"\x00\x00\x08\x03\x00\x00", "not an idx file of unsigned bytes"),
        (
            "values",
            b"\x00\x00\x08\x01\x00\x00\x00\x03\x01\x02",
            "holds 2 values where its header says 3: get a",
        ),
        ("plain.gz", b"\x00\x00\x08\x01\x00\x00\x00\x00", "cannot be unpacked .*: get a fresh copy"),
        ("cut.gz", gzip.compress(bytes(1000), mtime=0)[:-10], "cannot be unpacked .*: get a fresh copy"),
    ],
)
def test_unusable_idx(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_idx(tmp_path / name)


@pytest.mark.parametrize("wrapped", [False, True])
def test_parquet_images(tmp_path, wrapped):
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    cells = [{"bytes": png(image)} if wrapped else png(image) for image in images]
    parquet.write_table(table({"image": cells, "label": [2, 0, 1]}), tmp_path / "images.parquet")
    found, labels = read_parquet_images(tmp_path / "images.parquet")
    np.testing.assert_array_equal(found, images)
    assert labels.tolist() == [2, 0, 1]


GREY = png(np.zeros((2, 2), dtype=np.uint8))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"img": [GREY], "label": [0]}, "has no column 'image', only img, label: rename its columns"),
        ({"image": [GREY]}, "has no column 'label', only image: rename its columns"),
        ({"image": [GREY, b"x"], "label": [0, 1]}, "Row 1 of .* holds no readable image: leave the row out"),
        ({"image": [GREY, None], "label": [0, 1]}, "Row 1 of .* holds no readable image"),
        (
            {"image": [GREY, png(np.zeros((3, 2), np.uint8))], "label": [0, 1]},
            "one common size, .*: resize them",
        ),
        ({"image": [GREY], "label": ["a"]}, "column label of .* has type object: give integers"),
        ({"image": [GREY, GREY], "label": [0, None]}, "column label of .* has type float64: give integers"),
    ],
)
def test_unusable_parquet(tmp_path, columns, message):
    parquet.write_table(table(columns), tmp_path / "images.parquet")
    with pytest.raises(UserError, match=message):
        read_parquet_images(tmp_path / "images.parquet")


def test_parquet_that_is_none(tmp_path):
    (tmp_path / "images.parquet").write_text("no parquet")
    with pytest.raises(UserError, match=r"is not a parquet file .*: get a fresh copy"):
        read_parquet_images(tmp_path / "images.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="needs pyarrow and Pillow: pip install pyarrow pillow"):
        read_parquet_images(tmp_path / "images.parquet")
