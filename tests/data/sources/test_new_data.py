"""New data are read as the training data were."""

import numpy as np
import pandas as pd
import pytest
import torch
from making import PARTS, encoded, features, picture, write_folder, write_table

from karat.data.datasets import load_data, load_dataset
from karat.data.schema import Schema
from karat.data.settings import DataSettings
from karat.data.sources.new_data import read_new_data
from karat.data.sources.problems import BadImages
from karat.errors import UserError


@pytest.fixture
def table(tmp_path):
    return load_dataset(write_table(tmp_path / "mine.csv", features()))


@pytest.fixture
def folder(tmp_path):
    return load_dataset(write_folder(tmp_path / "mine", PARTS))


def test_a_table_becomes_what_it_was_in_training(tmp_path, table):
    """Through JSON and back, in another order, from another format: the same inputs."""
    schema = Schema.from_dict(table.schema.to_dict())
    new = read_new_data(schema, tmp_path / "mine.csv")
    assert torch.equal(new.inputs[:10], table.train.inputs)
    assert new.names == tuple(str(row) for row in range(12))
    assert new.labels is None
    shuffled = pd.read_csv(tmp_path / "mine.csv")[["colour", "size"]].assign(id="x", extra=1)
    again = read_new_data(schema, write_table(tmp_path / "new.parquet", shuffled))
    torch.testing.assert_close(again.inputs, new.inputs)
    assert again.names[0] == "x"


def test_a_table_without_labels_cannot_be_measured_on(tmp_path, table):
    new = write_table(tmp_path / "new.csv", features().drop(columns="label"))
    with pytest.raises(UserError, match=r"no column 'label'.*or use karat predict"):
        read_new_data(table.schema, new, table.classes)


def test_a_level_never_seen_is_none_and_a_rare_one_another(tmp_path):
    """51 levels: the 50 most frequent ones have an input each, the other one and new ones share the last."""
    levels = [f"l{number:02}" for number in range(50)] * 2 + ["rare"]
    frame = pd.DataFrame({"a": levels, "b": "yes", "label": np.resize(["x", "y"], 101), "trusted": 1})
    frame.loc[10:, "trusted"] = 0
    mine = load_dataset(write_table(tmp_path / "mine.csv", frame))
    assert mine.schema.shape == (52,)
    new = write_table(tmp_path / "new.csv", pd.DataFrame({"a": ["l07", "rare", "new"], "b": ["yes", "no", "YES"]}))
    inputs = read_new_data(mine.schema, new).inputs
    assert inputs.nonzero().tolist() == [[0, 7], [0, 51], [1, 50], [2, 50]]


def test_unusable_new_tables(tmp_path, table):
    frame = features()

    def read(changed, classes=None):
        return read_new_data(table.schema, write_table(tmp_path / "new.csv", changed), classes)

    with pytest.raises(UserError, match=r"has no column 'size', which the model was trained on\. Its columns are"):
        read(frame.drop(columns="size"))
    with pytest.raises(UserError, match="Column 'size' held numbers in the train rows and has 'big' here"):
        read(frame.assign(size="big"))
    with pytest.raises(UserError, match=r"Numbers are missing \(12 in 'size'\).*trained with --data.missing impute"):
        read(frame.assign(size=""))
    with pytest.raises(UserError, match=r"labels that the model does not know \('maybe'\).*\(no, yes\)"):
        read(frame.assign(label="maybe"), table.classes)
    with pytest.raises(UserError, match="has no column 'label'"):
        read(frame.drop(columns="label"), table.classes)
    with pytest.raises(UserError, match=r"was trained on a table, and .* is none"):
        read_new_data(table.schema, tmp_path)
    with pytest.raises(UserError, match=r"There is no file or folder .*gone"):
        read_new_data(table.schema, tmp_path / "gone")


def test_labelled_rows_are_those_of_the_test_part(tmp_path, table, folder):
    new = read_new_data(table.schema, tmp_path / "mine.csv", table.classes)
    assert torch.equal(new.labels, table.test.labels)
    assert torch.equal(new.inputs, table.test.inputs)
    new = read_new_data(folder.schema, tmp_path / "mine", folder.classes)
    assert new.names == folder.test_names
    assert torch.equal(new.labels, folder.test.labels)
    assert torch.equal(new.inputs[:], folder.test.inputs[:])


def test_images_from_anywhere(tmp_path, folder):
    """One picture as a file, in a flat folder, in a table of paths and in one of bytes: the same input."""
    flat = tmp_path / "flat"
    flat.mkdir()
    image = picture()
    image.save(flat / "a.png")
    expected = torch.tensor(np.asarray(image) / 127.5 - 1, dtype=torch.float32).movedim(-1, 0)[None]
    paths = write_table(tmp_path / "new.csv", pd.DataFrame({"path": ["a.png"], "age": 3}))
    cells = write_table(tmp_path / "new.parquet", pd.DataFrame({"image": [encoded(image)]}))
    for data, base, name in ((flat / "a.png", None, str(flat / "a.png")), (flat, None, "a.png"),
                             (paths, flat, "a.png"), (cells, None, "0")):  # fmt: skip
        new = read_new_data(folder.schema, data, path=base)
        torch.testing.assert_close(new.inputs[:], expected)
        assert new.names == (name,)


def test_broken_images_stop_or_are_skipped(tmp_path, folder):
    flat = tmp_path / "flat"
    flat.mkdir()
    picture().save(flat / "a.png")
    (flat / "b.png").write_bytes(b"")
    with pytest.raises(BadImages, match=r"b\.png: the file is empty"):
        read_new_data(folder.schema, flat)
    new = read_new_data(folder.schema, flat, on_bad_image="skip")
    assert new.names == ("a.png",)
    assert [skipped.name for skipped in new.skipped] == ["b.png"]
    assert len(new.inputs) == 1


def test_arrays(tmp_path, folder):
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    file = tmp_path / "new.npz"
    np.savez(file, inputs=pixels, labels=np.array(["dog", "cat"]), ids=np.array([7, 8]))
    new = read_new_data(folder.schema, file, folder.classes)
    assert (new.names, new.labels.tolist()) == (("7", "8"), [1, 0])
    assert (new.inputs == -1).all()
    np.savez(file, train_inputs=pixels[:1], ids=np.array(["of train"]), test_inputs=pixels, test_labels=["dog", "cat"])
    new = read_new_data(folder.schema, file, folder.classes)
    assert (new.names, new.labels.tolist()) == (("0", "1"), [1, 0])
    np.savez(file, inputs=pixels[:, :8])
    with pytest.raises(UserError, match="have 3 channels and 8x16 pixels: give images of 3 channels and 16x16"):
        read_new_data(folder.schema, file)
    np.savez(file, inputs=pixels, labels=np.array(["dog", "eel"]))
    with pytest.raises(UserError, match=r"new\.npz has labels that the model does not know \('eel'\)"):
        read_new_data(folder.schema, file, folder.classes)
    np.savez(file, inputs=pixels, labels=np.array(["dog"]), ids=np.array([1, 1]))
    with pytest.raises(UserError, match=r"has 2 inputs and 1 labels: give one label per input"):
        read_new_data(folder.schema, file, folder.classes)
    assert read_new_data(folder.schema, file).names == ("1", "1")
    np.savez(file, inputs=pixels, ids=np.array([1]))
    with pytest.raises(
        UserError, match=r"array ids in .* shape \(1,\): give one integer or text for each of the 2 rows"
    ):
        read_new_data(folder.schema, file)
    with pytest.raises(UserError, match="has no array inputs and labels"):
        read_new_data(folder.schema, file, folder.classes)


def test_a_schema_of_something_else_is_refused():
    with pytest.raises(UserError, match="The schema of the run is not one of Karat"):
        Schema.from_dict({"format": "other"})
    with pytest.raises(UserError, match="The schema of the run is not one of Karat"):
        Schema.from_dict({**Schema((2,)).to_dict(), "extra": 1})


def test_the_size_of_images_is_the_runs(tmp_path, folder):
    mine = load_data(DataSettings(str(tmp_path / "mine"), image_size=8))
    assert read_new_data(mine.schema, tmp_path / "mine").inputs.shape == (14, 3, 8, 8)


def test_a_table_without_images_says_what_helps(tmp_path, folder):
    table = write_table(tmp_path / "new.csv", pd.DataFrame({"file": ["a.png"]}))
    with pytest.raises(
        UserError, match=r"no column 'path', .* Its columns are file: give the one with the images that"
    ):
        read_new_data(folder.schema, table)
