"""Arrays in an .npz file are checked as all other data are."""

import numpy as np
import pytest

from karat.data.datasets import load_dataset
from karat.errors import UserError

RANDOM = np.random.default_rng(0)
SHAPES = {"images": (6, 6), "vectors": (4,)}


def save(file, kind, **changes):
    """Write 12 train rows of three classes, the first three trusted, and three test rows; then some arrays changed."""
    inputs = RANDOM.integers(0, 256, (15, *SHAPES[kind]), dtype=np.uint8)
    inputs = inputs if kind == "images" else inputs / 7
    arrays = {
        "train_inputs": inputs[:12],
        "train_labels": np.arange(12) % 3,
        "test_inputs": inputs[12:],
        "test_labels": np.arange(3),
        "trusted": np.arange(12) < 3,
    }
    changed = {name: change(arrays) for name, change in changes.items()}
    arrays = {name: array for name, array in {**arrays, **changed}.items() if array is not None}
    np.savez(file, **arrays)
    return str(file)


def leaked(row):
    """Put a train row in the place of the first test row."""
    return lambda arrays: np.concatenate([arrays["train_inputs"][[row]], arrays["test_inputs"][1:]])


def copied(source, target):
    """Put a train row in the place of another one."""

    def change(arrays):
        inputs = arrays["train_inputs"].copy()
        inputs[target] = inputs[source]
        return inputs

    return change


def test_what_is_right_is_no_remark(tmp_path):
    for kind in SHAPES:
        assert load_dataset(save(tmp_path / "mine.npz", kind)).notes == ()


def test_a_trusted_image_in_the_test_part_is_an_error_and_a_vector_a_warning(tmp_path):
    """Equal images are the same example; equal vectors may be two."""
    with pytest.raises(UserError, match=r"mine\.npz: 1 trusted image is also in the test part \(row 1\): what is"):
        load_dataset(save(tmp_path / "mine.npz", "images", test_inputs=leaked(1)))
    (note,) = load_dataset(save(tmp_path / "mine.npz", "vectors", test_inputs=leaked(1))).notes
    assert "1 trusted feature row is also in the test part (row 1): the test accuracy will flatter" in note


@pytest.mark.parametrize("kind", SHAPES)
def test_noisy_rows_in_the_test_part_and_rows_under_two_labels_are_warnings(tmp_path, kind):
    noun = {"images": "image", "vectors": "feature row"}[kind]
    file = save(tmp_path / "mine.npz", kind, test_inputs=leaked(5), train_inputs=copied(8, 7))
    notes = "\n".join(load_dataset(file).notes)
    assert f"1 noisy {noun} is also in the test part (row 5): the test accuracy will flatter" in notes
    assert f"1 {noun} is in the train rows under two labels (row 7 as '1' = row 8 as '2')" in notes


def test_ids_name_the_rows_of_a_leak(tmp_path):
    ids = np.array([f"scan {row}" for row in range(12)])
    with pytest.raises(UserError, match=r"\(scan 1\)"):
        load_dataset(save(tmp_path / "mine.npz", "images", test_inputs=leaked(1), ids=lambda arrays: ids))


def test_all_problems_are_said_at_once(tmp_path):
    file = save(
        tmp_path / "mine.npz",
        "images",
        train_labels=lambda arrays: np.array(["a", "b", "", "c"] * 3),
        test_labels=lambda arrays: np.array(["a", "b", "z"]),
        trusted=lambda arrays: np.zeros(12, bool),
    )
    with pytest.raises(UserError, match=r"mine\.npz has 2 problems") as caught:
        load_dataset(file)
    assert "3 rows have no label (row 2, row 6, row 10)" in str(caught.value)
    assert "Only test rows have the label z" in str(caught.value)


def test_classes_without_a_trusted_row_are_noted(tmp_path):
    mine = load_dataset(save(tmp_path / "mine.npz", "vectors", trusted=lambda arrays: np.arange(12) < 2))
    assert "1 class has no trusted example (2): better verify at least one label of each." in mine.notes
    mine = load_dataset(save(tmp_path / "mine.npz", "vectors", trusted=lambda arrays: None))
    assert mine.trusted is None
    assert not mine.curated
