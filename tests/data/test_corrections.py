"""Labels that somebody looked at take the place of those of the data."""

from dataclasses import replace

import pytest
import torch

from karat.data.corrections import Corrections, corrected, read_corrections
from karat.data.datasets import load_dataset
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
    data = DataSettings("digits", corrections="labels.csv")
    with pytest.raises(UserError, match=r"data\.corrections holds the given labels, noise included"):
        prepare_task(data, NoiseSettings("uniform", 0.4))


@pytest.mark.parametrize(
    ("columns", "trusted", "others"),
    [("label,trusted", "true", "false"), ("cleaned_label,action", "trusted", "review")],
)
def test_a_task_takes_its_labels_from_the_file(tmp_path, columns, trusted, others):
    """Three rows get one trusted label of each class, row 5 is left out."""
    file = tmp_path / "labels.csv"
    cells = [f"7,7,class_2,{trusted}", f"3,3,class_0,{trusted}", f"4,4,class_1,{trusted}", f"5,5,,{others}"]
    file.write_text("\n".join([f"id,index,{columns}", *cells]))
    task = prepare_task(DataSettings("wine", corrections=file), NoiseSettings())
    assert task.trusted_rows.tolist() == [3, 4, 7]
    assert task.trusted.labels.tolist() == [0, 1, 2]
    assert len(task.noisy) == len(load_dataset("wine").train) - 4
    assert 5 not in task.dataset.rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"has the columns a, b: data\.corrections takes the labels\.csv of"),
        ("a\x1b[31m,b\n1,2\n", "has the columns a\ufffd\\[31m, b: "),
        ("index,label,trusted\n1,2,\n", "empty cell in the column trusted: write true or false"),
        ("index,label,trusted\n,2,true\n", "empty cell in the column index"),
    ],
)
def test_unusable_files(tmp_path, text, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_corrections(tmp_path / "labels.csv")
