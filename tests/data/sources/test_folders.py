import os

import numpy as np
import pytest
import torch
from making import PARTS, picture, write_folder
from PIL import Image

from karat.data.datasets import load_data, load_dataset
from karat.data.images import ImageFiles
from karat.data.settings import DataSettings
from karat.data.task import make_task
from karat.errors import UserError


def test_parts_and_classes_are_folders(tmp_path):
    mine = load_dataset(write_folder(tmp_path / "mine", PARTS))
    assert mine.name == "mine"
    assert mine.classes == ("cat", "dog")
    assert mine.train.labels.tolist() == [0] * 4 + [1] * 4 + [0, 1, 1]
    assert mine.trusted.tolist() == [False] * 8 + [True] * 3
    assert mine.names[0] == "train/cat/0.png"
    assert mine.names[-1] == "trusted/dog/1.png"
    assert sorted(mine.test_names) == ["test/cat/0.png", "test/cat/1.png", "val/dog/0.png"]
    assert not mine.curated
    assert isinstance(mine.train.inputs, ImageFiles)
    with Image.open(tmp_path / "mine" / "trusted/dog/1.png") as image:
        expected = torch.from_numpy(np.array(image)).movedim(-1, 0) / 127.5 - 1
    torch.testing.assert_close(mine.train.inputs[[10]][0], expected)
    task = make_task(mine)
    assert task.names == mine.names[:8]
    assert task.trusted_names == mine.names[8:]
    assert task.trusted_rows.tolist() == [8, 9, 10]


def test_classes_alone_with_trusted_and_test_folders_elsewhere(tmp_path):
    root = write_folder(tmp_path / "mine", {"cat": 3, "dog/deep/er": 3})
    write_folder(tmp_path / "sure", {"cat": 1, "dog": 1})
    write_folder(tmp_path / "later", {"cat": 2})
    mine = load_data(DataSettings(root, trusted=tmp_path / "sure", test=tmp_path / "later"))
    assert mine.names[3] == "dog/deep/er/0.png"
    assert mine.names[-1] == "sure/dog/0.png"
    assert mine.rows.tolist() == list(range(8))
    assert mine.trusted.sum() == 2
    assert mine.test_names == ("later/cat/0.png", "later/cat/1.png")
    with pytest.raises(UserError, match=r"There is no folder .*gone: check --data\.trusted"):
        load_data(DataSettings(root, trusted=tmp_path / "gone"))


def test_without_a_test_folder_the_test_part_is_empty(tmp_path):
    mine = load_dataset(write_folder(tmp_path / "mine", {name: PARTS[name] for name in list(PARTS)[:4]}))
    assert len(mine.test) == 0
    assert mine.test.inputs.shape == (0, 3, 16, 16)


def test_a_class_may_be_called_train(tmp_path):
    """Two folders of images called train and plane are classes; they are not parts, since plane is none."""
    root = write_folder(tmp_path / "mine", {"train": 2, "plane": 2})
    write_folder(tmp_path / "sure", {"train": 1, "plane": 1})
    assert load_data(DataSettings(root, trusted=tmp_path / "sure")).classes == ("plane", "train")


def test_what_is_no_image_is_counted_and_hidden_files_are_not(tmp_path):
    root = write_folder(tmp_path / "mine", PARTS)
    cats = tmp_path / "mine/train/cat"
    for name in ("notes.txt", "list.txt", "Thumbs.db", ".DS_Store", ".hidden.png"):
        (cats / name).write_text("no image")
    (tmp_path / "mine/train/eel").mkdir()
    os.symlink(cats, cats / "loop")
    mine = load_dataset(root)
    assert len(mine.train) == 11
    notes = " ".join(mine.notes)
    assert "not those of images: 2 .txt, 1 .db in" in notes
    assert "the folders eel of" in notes


def test_names_that_are_no_text_and_names_that_would_run(tmp_path):
    root = write_folder(tmp_path / "mine", {**PARTS, "train/=1+1": 2, "trusted/=1+1": 1})
    picture().save(os.fsencode(tmp_path / "mine/train/cat") + b"/caf\xe9.png")
    mine = load_dataset(root)
    assert "train/cat/caf\ufffd.png" in mine.names
    assert "=1+1" in mine.classes
    assert mine.train.inputs[:].isfinite().all()


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"train/cat": 2}, "mine: The train rows have one class"),
        ({**PARTS, "test/eel": 1}, "Only test rows have the label eel: add such examples"),
        ({"trusted/cat": 2, "trusted/dog": 2}, "All train rows are trusted: leave some noisy ones"),
        ({"cat": 0, "dog": 0}, "has no folders of images or texts .* put the files of each class"),
    ],
)
def test_unusable_folders(tmp_path, counts, message):
    with pytest.raises(UserError, match=message):
        load_dataset(write_folder(tmp_path / "mine", counts))


def test_no_such_data(tmp_path):
    with pytest.raises(
        UserError, match=r"There is no file or folder .*gone: give a folder of images or texts, a table"
    ):
        load_dataset(str(tmp_path / "gone"))
    (tmp_path / "mine.xlsx").touch()
    with pytest.raises(UserError, match=r"mine\.xlsx is not a file of data: give a folder of images or texts, a table"):
        load_dataset(str(tmp_path / "mine.xlsx"))
    with pytest.raises(UserError, match=r"is a folder of data itself: leave data.path out"):
        load_dataset(str(tmp_path), tmp_path)
