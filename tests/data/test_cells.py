"""What the user wrote is kept as it is, whatever it comes from."""

import numpy as np
import pandas as pd
import pytest
from making import write_table

from karat.data.cells import Cells
from karat.data.corrections import Corrections, corrected
from karat.data.datasets import load_data, load_dataset
from karat.data.settings import DataSettings
from karat.data.sources.memory import from_memory

COUNT = 120


def written():
    """A table of text cells that numbers and levels would not give back, two labels, eight trusted rows."""
    rows = range(COUNT)
    return pd.DataFrame(
        {
            "code": [f"{row:04}" for row in rows],
            "amount": [f"{1234567 + row}" if row % 7 else "" for row in rows],
            "share": ["0.10" if row % 2 else "1e-3" for row in rows],
            "town": [f"town {row % 60}" if row % 5 else "" for row in rows],
            "label": np.resize(["no", "yes"], COUNT),
            "trusted": [str(row < 8) for row in rows],
            "split": np.where(np.arange(COUNT) % 10 == 9, "test", "train").tolist(),
        }
    )


def test_cells_of_a_csv_are_its_text(tmp_path):
    """Also where a limit and corrections leave rows out: cells are found by the places in the data."""
    frame = written()
    data = DataSettings(write_table(tmp_path / "mine.csv", frame), missing="impute", limit=50)
    dataset = load_data(data)
    assert len(dataset.rows) == 50
    assert dataset.cells.names == ["code", "amount", "share", "town"]
    expected = frame[dataset.cells.names].to_numpy()
    assert dataset.cells.text(dataset.rows.tolist()) == expected[dataset.rows].tolist()
    dropped = corrected(dataset, Corrections(None, dataset.rows[:5].tolist(), [""] * 5, [False] * 5, "labels.csv"))
    assert dropped.cells.text(dropped.rows.tolist(), 2) == expected[dataset.rows[5:], :2].tolist()


@pytest.mark.parametrize("in_memory", [False, True])
def test_cells_of_typed_tables_are_their_numbers(tmp_path, in_memory):
    frame = pd.DataFrame(
        {
            "count": np.arange(6) + 1234567,
            "half": np.full(6, 0.1, dtype=np.float32),
            "whole": [2.0, np.nan, 3.0, 1e20, 0.1 + 0.2, -7.0],
            "maybe": pd.array([1, None] * 3, dtype="Int64"),
            "sure": [True, False] * 3,
            "kind": pd.Categorical(["=a", "b"] * 3),
            "label": ["x", "y"] * 3,
            "trusted": [True, True] + [False] * 4,
        }
    )
    if in_memory:
        inputs = frame.drop(columns=["label", "trusted"])
        dataset = from_memory(inputs, frame["label"], frame["trusted"], missing="impute")
    else:
        dataset = load_data(DataSettings(write_table(tmp_path / "mine.parquet", frame), missing="impute"))
    assert dataset.cells.text([0, 1, 3]) == [
        ["1234567", "0.1", "2", "1", "True", "=a"],
        ["1234568", "0.1", "", "", "False", "b"],
        ["1234570", "0.1", "1e+20", "", "False", "b"],
    ]
    assert dataset.cells.text([4], 3) == [["1234571", "0.1", "0.30000000000000004"]]


def test_cells_of_arrays_and_of_bundled_data(tmp_path):
    vectors = np.array([[1234567, 0.1], [-2.5, 3.0], [4.0, 5.0], [6.0, 7.0]], dtype=np.float32)
    np.savez(tmp_path / "mine.npz", train_inputs=vectors, train_labels=[0, 1, 0, 1])
    dataset = load_dataset(str(tmp_path / "mine.npz"))
    assert (dataset.cells.names, dataset.cells.text([1, 0])) == (["0", "1"], [["-2.5", "3"], ["1234567", "0.1"]])
    assert load_dataset("wine").cells.text([0], 2) != [["", ""]]
    assert load_dataset("digits").cells is None


def test_a_lookup_keeps_the_order_asked_for():
    assert Cells(np.arange(4)[:, None], np.array([2, 5, 7, 9])).text([9, 2, 7]) == [["3"], ["0"], ["2"]]
