import numpy as np
import pytest

from karat.data.readers import read_matrix, read_npz
from karat.errors import UserError


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 broken"])
def test_npz_that_is_none(tmp_path, content):
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"is not an .npz file of plain arrays .*: write it with numpy.savez"):
        read_npz(tmp_path / "data.npz")


def test_npy_named_npz(tmp_path):
    with (tmp_path / "data.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UserError, match=r"is not an .npz file"):
        read_npz(tmp_path / "data.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("matrix.csv", b"", "holds no matrix of numbers .*empty.*: write one row per true class"),
        ("matrix.csv", b"a,b\n1,0\n", "holds no matrix of numbers"),
        ("matrix.csv", b"1,0\n1\n", "holds no matrix of numbers"),
        ("matrix.npy", b"text", "holds no matrix of numbers"),
        ("matrix.txt", b"1", "Unknown matrix file ending '.txt'.*Choose one of: .csv, .npy"),
    ],
)
def test_unusable_matrix_file(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_matrix(tmp_path / name)


def test_missing_matrix_file(tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*matrix.csv: check the path"):
        read_matrix(tmp_path / "matrix.csv")
