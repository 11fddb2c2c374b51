import numpy as np
import pandas as pd
import pytest
import torch

from karat.data.settings import DataSettings
from karat.data.sources.memory import from_memory
from karat.data.task import make_task
from karat.errors import UserError

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("labels", [[3, 20, 3, 20], np.array([3.0, 20.0] * 2), pd.Series([3, 20] * 2), ["3", "20"] * 2])
def test_labels_of_any_kind_are_text_in_numeric_order(labels):
    mine = from_memory(RANDOM.normal(size=(4, 2)), labels, np.array([True, True, False, False]))
    assert mine.classes == ("3", "20")
    assert mine.train.labels.tolist() == [0, 1, 0, 1]


def test_frames_arrays_and_images_transform_new_data_alike():
    trusted = [True, True, False, False]
    frame = pd.DataFrame({0: [1.0, 2.0, 3.0, 5.0], "kind": ["a", "b", "a", "b"]})
    for inputs in (frame, RANDOM.normal(size=(4, 3)), RANDOM.integers(0, 256, (4, 8, 6), dtype=np.uint8)):
        mine = from_memory(inputs, ["no", "yes"] * 2, trusted, test=(inputs[2:], ["yes", "no"]), names=list("abcd"))
        assert torch.equal(mine.schema.inputs_of(inputs), mine.train.inputs)
        assert torch.equal(mine.test.inputs, mine.train.inputs[2:])
        assert mine.test.labels.tolist() == [1, 0]
        task = make_task(mine)
        assert (task.trusted_names, task.names) == (("a", "b"), ("c", "d"))


@pytest.mark.parametrize("trusted", [None, [False] * 40])
def test_without_marks_nothing_is_trusted_unless_rows_are_to_be_drawn(trusted):
    mine = from_memory(RANDOM.normal(size=(40, 2)), [0, 1] * 20, trusted)
    assert len(make_task(mine).trusted) == 0
    assert len(make_task(mine).noisy) == 40
    assert len(make_task(mine, DataSettings(trusted_per_class=3)).trusted) == 6


def test_a_class_without_a_trusted_row_is_noted():
    mine = from_memory(RANDOM.normal(size=(4, 2)), ["a", "b"] * 2, [True, False, False, False])
    assert mine.notes == ("1 class has no trusted example (b): better verify at least one label of each.",)


def test_classes_in_an_order_of_their_own_and_names_that_occur_twice():
    mine = from_memory(RANDOM.normal(size=(4, 2)), list("abca"), classes=["c", "a", "b"], names=["x", "x", "y", "z"])
    assert mine.classes == ("c", "a", "b")
    assert mine.train.labels.tolist() == [1, 2, 0, 1]
    assert mine.names == ("x", "x (row 1)", "y", "z")


def test_lists_in_a_frame_become_columns_in_new_data_too():
    frame = pd.DataFrame({"embedding": [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0], [7.0, 8.0]]})
    mine = from_memory(frame, ["a", "b"] * 2)
    assert mine.schema.inputs == ("embedding[0]", "embedding[1]")
    assert torch.equal(mine.schema.inputs_of(frame), mine.train.inputs)


def test_memory_is_checked_as_files_are():
    """A trusted image in the test part is an error, a vector a remark; two labels of one row are a remark."""
    trusted, labels = [True, True, False, False], ["a", "b"] * 2
    for inputs in (RANDOM.integers(0, 256, (4, 8, 6), dtype=np.uint8), RANDOM.normal(size=(4, 3))):
        again = inputs.copy()
        again[3] = again[2]
        notes = from_memory(again, labels, trusted).notes
        assert ["in the train rows under two labels (row 2 as 'a' = row 3 as 'b')" in note for note in notes] == [True]
        leak = (inputs, labels, trusted)
        if inputs.ndim == 3:
            with pytest.raises(UserError, match=r"data: 1 trusted image is also in the test part \(row 0\)"):
                from_memory(*leak, test=(inputs[:1], ["a"]))
        else:
            (note,) = from_memory(*leak, test=(inputs[:1], ["a"])).notes
            assert "1 trusted feature row is also in the test part (row 0)" in note


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["a"] * 4}, r"The train rows have one class \('a'\): give examples of at least 2"),
        ({"labels": ["a", "b", None, "a"]}, r"1 row has no label \(row 2\): write one"),
        ({"labels": ["a", "b"]}, "There are 4 rows of the inputs and 2 labels: give one label for each row"),
        ({"trusted": [1, 0, 1, 0]}, r"trusted has type int64 .*: give one boolean for each of the 4 rows"),
        ({"test": (np.zeros((1, 2)), ["c"])}, "Only test rows have the label c"),
        ({"names": ["a"]}, "There are 1 names and 4 labels"),
        ({"inputs": np.full((4, 2), np.nan)}, "NaN or infinite values in 4 of 4 examples"),
        ({"inputs": pd.DataFrame({"a": [1, 2, 3]})}, "There are 3 rows of the inputs and 4 labels"),
        ({"inputs": pd.DataFrame({"a": [1, 2, 3, None]})}, r"Numbers are missing .* or put an imputer in front"),
        ({"trusted": [True] * 4}, "All train rows are trusted: leave some noisy ones"),
        ({"test": (np.zeros((1, 3)), ["a"])}, r"shape \(2,\) in the inputs and \(3,\) in the test inputs"),
        ({"test": (pd.DataFrame({"x": [1]}), ["a"])}, "the inputs has vectors and the test inputs has features"),
        ({"inputs": pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * 4)})}, "Column 'a' holds dates"),
    ],
)
def test_unusable_memory(options, message):
    arguments = {"inputs": RANDOM.normal(size=(4, 2)), "labels": ["a", "b"] * 2, **options}
    with pytest.raises(UserError, match=message):
        from_memory(**arguments)
