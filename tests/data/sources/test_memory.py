import numpy as np
import pandas as pd
import pytest
import torch

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


def test_without_marks_trusted_rows_are_drawn():
    mine = from_memory(RANDOM.normal(size=(40, 2)), [0, 1] * 20)
    assert len(make_task(mine).trusted) == 20


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
        ({"inputs": pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * 4)})}, "Column 'a' holds dates"),
    ],
)
def test_unusable_memory(options, message):
    arguments = {"inputs": RANDOM.normal(size=(4, 2)), "labels": ["a", "b"] * 2, **options}
    with pytest.raises(UserError, match=message):
        from_memory(**arguments)
