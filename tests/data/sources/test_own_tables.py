from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from making import encoded, features, picture, write_table

from karat.data.datasets import load_data, load_dataset
from karat.data.settings import DataSettings
from karat.errors import UserError


def images(folder, count=8):
    """Write images and return a table that names them: the first two are trusted, the last is for the test."""
    folder.mkdir()
    for number in range(count):
        picture().save(folder / f"{number}.png")
    return pd.DataFrame(
        {
            "path": [f"{folder.name}/{number}.png" for number in range(count)],
            "label": np.resize(["01", "1"], count),
            "trusted": ["yes", "YES", "1"][:2] + ["", "no", "0", "false", "n", ""][: count - 2],
            "split": [""] * (count - 1) + ["Test"],
            "id": [f"r{number}" for number in range(count)],
            "note": "text",
        }
    )


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_a_table_of_paths(tmp_path, ending):
    mine = load_dataset(write_table(tmp_path / f"mine.{ending}", images(tmp_path / "pictures")))
    assert mine.name == "mine"
    assert mine.classes == ("01", "1")  # kept as they were written
    assert mine.names == tuple(f"r{number}" for number in range(7))
    assert mine.test_names == ("r7",)
    assert mine.trusted.tolist() == [True, True] + [False] * 5
    assert mine.train.labels.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert mine.train.inputs.shape == (7, 3, 16, 16)
    assert "Not used, since the images are what is learned from: note." in mine.notes


def test_paths_start_from_the_table_or_from_data_path_or_are_absolute(tmp_path):
    table = images(tmp_path / "pictures")
    first = load_dataset(write_table(tmp_path / "mine.csv", table.drop(columns="id")))
    assert first.names[0] == "pictures/0.png"
    (tmp_path / "else").mkdir()
    moved = write_table(tmp_path / "else" / "mine.csv", table)
    with pytest.raises(UserError, match="8 images cannot be read"):
        load_dataset(moved)
    for dataset in (
        load_dataset(moved, tmp_path),
        load_dataset(write_table(tmp_path / "else" / "up.csv", table.assign(path="../" + table["path"]))),
        load_dataset(write_table(tmp_path / "else" / "far.csv", table.assign(path=f"{tmp_path}/" + table["path"]))),
    ):
        assert torch.equal(dataset.train.inputs[:], first.train.inputs[:])


@pytest.mark.parametrize("struct", [False, True])
def test_encoded_images_in_a_parquet_table(tmp_path, struct):
    pictures = [picture() for _ in range(6)]
    cells = [encoded(image) for image in pictures]
    table = pd.DataFrame({"image": cells, "label": [0, 1] * 3, "trusted": [1, 1, 0, 0, 0, 0]})
    if struct:
        table["image"] = [{"bytes": cell, "path": f"{number}.png"} for number, cell in enumerate(cells)]
    mine = load_dataset(write_table(tmp_path / "mine.parquet", table))
    assert mine.classes == ("0", "1")
    assert mine.names == (tuple(f"{number}.png" for number in range(6)) if struct else None)
    expected = torch.tensor(np.stack(pictures) / 127.5 - 1, dtype=torch.float32).movedim(-1, 1)
    torch.testing.assert_close(mine.train.inputs[:], expected)
    table["image"] = [b"damaged", *cells[1:]] if not struct else [None, *table["image"][1:]]
    with pytest.raises(UserError, match="1 image cannot be read") as caught:
        load_dataset(write_table(tmp_path / "mine.parquet", table))
    assert "row 0: " in str(caught.value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_of_features(tmp_path, ending):
    """size is standardised by the ten train rows, each of three colours gets an input: four inputs."""
    table = features()
    mine = load_dataset(write_table(tmp_path / f"mine.{ending}", table))
    sizes = table["size"][:10]
    expected = ((table["size"] - sizes.mean()) / sizes.std(ddof=0)).astype(np.float32)
    assert mine.schema.inputs == ("size", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_allclose(mine.train.inputs[:, 0], expected[:10], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mine.test.inputs[:, 0], expected[10:], rtol=1e-4, atol=1e-6)
    assert mine.train.inputs[:3, 1:].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert mine.names is None
    assert mine.trusted.sum() == 4


def test_separate_files_for_trusted_and_test_rows(tmp_path):
    table = features().drop(columns=["trusted", "split"]).assign(id=[str(number) for number in range(12)])
    main = write_table(tmp_path / "main.csv", table[4:10])
    write_table(tmp_path / "sure.csv", table[:4][["label", "colour", "size", "id"]])
    write_table(tmp_path / "later.csv", table[10:].assign(id=["4", "5"]))  # numbered anew: no duplicates
    mine = load_data(DataSettings(main, trusted=tmp_path / "sure.csv", test=tmp_path / "later.csv"))
    assert mine.trusted.tolist() == [False] * 6 + [True] * 4
    assert mine.names == ("4", "5", "6", "7", "8", "9", "0", "1", "2", "3")
    assert len(mine.test) == 2
    write_table(tmp_path / "less.csv", table[:4].drop(columns="size"))
    with pytest.raises(UserError, match=r"less\.csv has no column size, which .*main\.csv has"):
        load_data(DataSettings(main, trusted=tmp_path / "less.csv"))


def test_columns_of_other_names(tmp_path):
    table = features().rename(columns={"label": "Class", "size": "x"}).assign(key=range(12), path="nothing")
    file = write_table(tmp_path / "mine.csv", table)
    settings = {"label_column": "Class", "id_column": "key", "features": ["x"]}
    mine = load_data(DataSettings(file, **settings))
    assert mine.schema.inputs == ("x",)
    assert mine.names[3] == "3"
    assert (mine.schema.label_column, mine.schema.id_column) == ("Class", "key")
    with pytest.raises(UserError, match=r"has no column 'label'\..*Its columns are x, colour, Class.*label_column"):
        load_dataset(file)
    with pytest.raises(UserError, match=r"no column 'y'\. .* name the one with the features in --data.features"):
        load_data(DataSettings(file, **{**settings, "features": ["y"]}))
    with pytest.raises(UserError, match=r"--data\.features names 'Class', which says what the label is"):
        load_data(DataSettings(file, **{**settings, "features": ["x", "Class"]}))
    assert load_data(DataSettings(file, **{**settings, "features": ["x", "x"]})).schema.inputs == ("x",)


def test_lists_become_columns_and_row_numbers_are_left_out(tmp_path):
    table = features().drop(columns=["size", "colour"])
    table["embedding"] = [np.arange(3.0) * number for number in range(12)]
    table.insert(0, "index", range(12))
    mine = load_dataset(write_table(tmp_path / "mine.parquet", table))
    assert mine.schema.inputs == ("embedding[0]", "embedding[1]", "embedding[2]")
    assert "Not used, since it only numbers the rows: column 'index'." in mine.notes
    assert load_data(DataSettings(str(tmp_path / "mine.parquet"), features=["embedding"])).schema == mine.schema
    table.at[3, "embedding"] = np.arange(2.0)
    with pytest.raises(UserError, match=r"lists in column 'embedding' .* not all of one length"):
        load_dataset(write_table(tmp_path / "mine.parquet", table))


def change(**cells):
    """Return a change of the third row (and more) of the table of features."""

    def changed(table):
        table = table.astype(object)
        for column, value in cells.items():
            table.loc[3, column] = value
        return table

    return changed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change(label=""), r"1 row has no label \(row 3\): write one, or take the row out"),
        (change(size=""), r"Numbers are missing in the train rows \(1 in 'size'\): .* --data\.missing impute"),
        (change(size="inf"), r"Numbers are infinite in the train rows \(1 in 'size'\)"),
        (change(trusted="perhaps"), "column trusted of .* has perhaps: write true or false, 1 or 0, yes or no"),
        (
            change(split="later"),
            "column split of .* has later: write train, trusted, test, val, validation, or nothing",
        ),
        (change(split="test"), "marks 1 row as trusted and as test, row 3 first: what is learned from cannot"),
        (lambda table: table.assign(label="no"), r"The train rows have one class \('no'\): give examples of at least"),
        (lambda table: table.assign(id=1), r"1 id names more than one row \(1\): give each row an id of its own"),
        (lambda table: table.assign(born="2020-01-05"), "Column 'born' holds dates: turn them into numbers"),
        (lambda table: table.drop(columns=["size", "colour"]), "has nothing to learn from: add a column path or image"),
        (lambda table: table[:0], "has no rows: write one line for each example"),
        (lambda table: table.assign(size=""), "Column 'size' is empty in all train rows"),
    ],
)
def test_unusable_tables(tmp_path, changed, message):
    with pytest.raises(UserError, match=message):
        load_dataset(write_table(tmp_path / "mine.csv", changed(features())))


def test_all_problems_are_said_at_once(tmp_path):
    table = features().assign(id=1, born="2020-01-05")
    table.loc[5, "label"] = None
    with pytest.raises(UserError, match=r"mine.csv has 3 problems:") as caught:
        load_dataset(write_table(tmp_path / "mine.csv", table))
    for number, start in enumerate(["1 row has no label", "1 id names", "Column 'born'"], 1):
        assert f"\n  {number}. {start}" in str(caught.value)


@pytest.mark.parametrize("other", ["cafe\u0301", "caf\u00e9\u200b", "ＣＡＦÉ"])
def test_labels_that_look_alike_are_a_warning(tmp_path, other):
    table = features(24)
    table["label"] = np.resize(["caf\u00e9", other], 24)
    notes = "\n".join(load_dataset(write_table(tmp_path / "mine.csv", table)).notes)
    assert "the encoding of characters alone are different classes here" in notes


def test_labels_do_not_steer_the_terminal(tmp_path):
    table = features(24)
    table["label"] = np.resize(["cat", "dog", "evil\x1b[31m"], 24)
    table.loc[[7, 8], ["size", "colour"]] = [1.0, "red"]
    notes = "\n".join(load_dataset(write_table(tmp_path / "mine.csv", table)).notes)
    assert "row 7 as 'dog' = row 8 as 'evil�[31m'" in notes
    assert "\x1b" not in notes


def test_labels_that_nearly_agree_and_equal_rows_are_warnings(tmp_path):
    table = features(24)
    table["label"] = np.resize(["cat", "Cat", "cat "], 24)
    table.loc[[6, 9], ["size", "colour"]] = [1.0, "red"]
    table.loc[[0, 23], ["size", "colour"]] = [2.0, "red"]
    table.loc[6, "label"] = "Cat"
    notes = "\n".join(load_dataset(write_table(tmp_path / "mine.csv", table)).notes)
    assert "encoding of characters alone are different classes here ('Cat' and 'cat' and 'cat ')" in notes
    assert "1 feature row is in the train rows under two labels (row 6 as 'Cat' = row 9 as 'cat')" in notes
    assert "1 trusted feature row is also in the test part (row 0)" in notes


def test_missing_numbers_are_filled_in_if_asked(tmp_path):
    """The median of the known sizes 1, 2 and 6 is 2; one more input says where it was taken."""
    table = features(12)
    table["size"] = [1.0, 2.0, 6.0, np.nan] * 3
    mine = load_data(DataSettings(write_table(tmp_path / "mine.csv", table), missing="impute"))
    assert mine.schema.inputs[:2] == ("size", "size is missing")
    assert mine.schema.columns[0].fill == 2.0
    assert mine.train.inputs[:4, 1].tolist() == [0, 0, 0, 1]
    assert mine.train.inputs[3, 0] == mine.train.inputs[1, 0]


def test_settings_of_tables_are_refused_elsewhere(tmp_path):
    with pytest.raises(UserError, match=r"data.trusted is for tables, folders, and not for 'digits': leave"):
        load_data(DataSettings("digits", trusted=tmp_path))
    for name, value in (("label_column", "y"), ("features", ["a"]), ("missing", "impute"), ("on_bad_image", "skip")):
        for data in ("digits", str(tmp_path), "mine.npz"):
            if (name, data) != ("on_bad_image", str(tmp_path)):  # a folder of images reads that one
                with pytest.raises(UserError, match=f"data.{name} is for tables"):
                    load_data(replace(DataSettings(data), **{name: value}))
    file = write_table(tmp_path / "mine.csv", features())
    with pytest.raises(
        UserError, match=r"data.download is for tables, folders, cifar10, cifar100, and not for 'mine.npz'"
    ):
        load_data(DataSettings("mine.npz", download=True))
    with pytest.raises(UserError, match=r"--data.test is .*: give a table as"):
        load_data(DataSettings(file, test=tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: write a line with the names of the columns"),
        ("a,label\n1,x,y\n2,x,z\n", "has rows that do not fit its first line"),
        ("a,label\n1,x\n2,x,z\n", "Expected 2 fields in line 3, saw 3"),
        ('a,label\n"1,x\n', "has rows that do not fit its first line"),
        ("a,a,label\n1,2,x\n", "has more than one column 'a'"),
        ("é,label\n1,x\n".encode("latin-1"), "is not text in UTF-8"),
    ],
)
def test_damaged_files(tmp_path, content, message):
    file = tmp_path / "mine.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        load_dataset(str(file))
    (tmp_path / "mine.parquet").write_text("no")
    with pytest.raises(UserError, match="is not a readable parquet file"):
        load_dataset(str(tmp_path / "mine.parquet"))


def test_text_is_not_guessed_at(tmp_path):
    """NA, null and 1.0 are classes as good as any; a semicolon separates where no comma does."""
    rows = [f"{number};{label};{int(number < 4)}" for number, label in enumerate(["NA", "null", "1.0", "01"] * 2)]
    (tmp_path / "mine.csv").write_text("\ufeffx;label;trusted\n" + "\n".join(rows))
    assert load_dataset(str(tmp_path / "mine.csv")).classes == ("01", "1.0", "NA", "null")
