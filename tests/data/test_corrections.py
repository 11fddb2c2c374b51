"""Labels that somebody looked at take the place of those of the data."""

from dataclasses import replace

import pytest
import torch

from karat.data.corrections import Corrections, corrected
from karat.data.examples import Dataset, Examples
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import make_task, prepare_task
from karat.errors import UserError


def dataset(**changes):
    part = Examples(torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 0, 1, 0, 1]))
    rows = torch.arange(10, 16)
    return replace(Dataset("mine", part, part, ("NA", "=1"), flip=False, rows=rows), **changes)


def test_labels_and_trusted_rows_are_replaced_by_name():
    """By name where the data have names; a row that is not listed keeps its label, an empty label goes."""
    new = Corrections(["c", "a", "f"], [0, 0, 0], ["=1", "NA", ""], [True, True, False], "labels.csv")
    found = corrected(dataset(names=tuple("abcdef"), trusted=torch.zeros(6, dtype=torch.bool)), new)
    assert found.train.labels.tolist() == [0, 1, 1, 1, 0]
    assert found.trusted.tolist() == [True, False, True, False, False]
    assert found.names == tuple("abcde")
    assert found.rows.tolist() == [10, 11, 12, 13, 14]
    assert not found.curated
    task = make_task(found)
    assert task.trusted_names == ("a", "c")
    assert task.trusted.labels.tolist() == [0, 1]
    assert task.names == ("b", "d", "e")


def test_rows_are_found_by_index_where_the_data_have_no_names():
    new = Corrections(["10", "13"], [10, 13], ["=1", "NA"], [True, True], "labels.csv")
    found = corrected(dataset(), new)
    assert found.train.labels.tolist() == [1, 1, 0, 0, 0, 1]
    assert found.trusted.nonzero().squeeze(1).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            Corrections(None, [99], ["NA"], [True], "f.csv"),
            "f.csv names 1 examples that the data do not have, such as '99'",
        ),
        (Corrections(None, [10, 10], ["NA"] * 2, [True] * 2, "f.csv"), "names an example twice"),
        (Corrections(None, [10], ["cat"], [True], "f.csv"), "the label 'cat', which is no class"),
        (Corrections(["10"], None, ["NA"], [True], "f.csv"), "has no column index"),
    ],
)
def test_files_of_other_data_are_refused(new, message):
    with pytest.raises(UserError, match=message):
        corrected(dataset(), new)


def test_noise_does_not_come_on_top():
    data = DataSettings("digits", labels_file="labels.csv")
    new = Corrections(None, [], [], [], "labels.csv")
    with pytest.raises(UserError, match="holds the given labels, noise included"):
        prepare_task(data, NoiseSettings("uniform", 0.4), corrections=new)
    with pytest.raises(UserError, match="prepare the task with"):
        prepare_task(data, NoiseSettings())
