"""`karat train DATA` with data of one's own, as a user meets it."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from PIL import Image

from karat.cli import main

SHORT = ["--training.steps", "3", "--training.batch_size", "4", "--training.device", "cpu", "--training.threads", "1"]
RANDOM = np.random.default_rng(0)


def write_table(folder, count=30):
    values = RANDOM.normal(size=count)
    frame = pd.DataFrame({"x": values, "town": np.resize(["Bonn", "Rome", "Oslo"], count)})
    frame["label"] = np.where(values > 0, "<b>=1</b>", "../../x")
    frame["trusted"] = frame.groupby("label").cumcount() < 3
    frame["id"] = [f"row{number}" for number in range(count)]
    frame.to_csv(folder / "mine.csv", index=False)
    return str(folder / "mine.csv")


def write_images(root):
    for part, count in (("train", 6), ("trusted", 2)):
        for name in ("cat", "dog"):
            (root / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = RANDOM.integers(0, 256, (12, 12), dtype=np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{number}.png")
    return str(root)


def test_a_table_without_a_test_part_is_trained_on_and_resumed(tmp_path, capsys):
    """Class names that are paths stay names: only the run folder is written to."""
    table, run = write_table(tmp_path), tmp_path / "run"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert main(["train", table, "--run", str(run), *SHORT]) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path != run} == before
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["name"] == table
    issues = pd.read_csv(run / "label_issues.csv")
    assert set(issues["id"]) == {f"row{number}" for number in range(30)} - trusted_ids(tmp_path)
    assert set(issues["given_label"]) == {"<b>=1</b>", "../../x"}
    assert json.loads((run / "schema.json").read_text())["schema"]["columns"][1]["levels"] == ["Bonn", "Oslo", "Rome"]
    said = capsys.readouterr().out
    assert f"Label issues: {issues['is_label_issue'].sum()} of 24 noisy labels (label_issues.csv)." in said
    assert f"Everything is in {run}. Open {run}/report.html in a browser" in said
    assert main(["train", table, "--run", str(run), "--resume"]) == 0
    assert main(["train", "other.csv", "--run", str(run), "--resume"]) == 2
    assert "data.name was" in capsys.readouterr().err


def trusted_ids(folder):
    frame = pd.read_csv(folder / "mine.csv")
    return set(frame.loc[frame["trusted"], "id"])


def test_data_are_named_once(tmp_path, capsys):
    table = write_table(tmp_path)
    assert main(["train", table, "--data.name", "digits", *SHORT]) == 2
    assert f"The data are {table} and, by data.name, digits: name them once." in capsys.readouterr().err
    file = tmp_path / "settings.yaml"
    file.write_text("data: {name: wine}")
    assert main(["train", table, "--config", str(file), *SHORT]) == 2
    assert "name them once" in capsys.readouterr().err


def test_unreadable_images_are_listed_and_then_skipped(tmp_path, capsys):
    """The folder of the run that did not start takes the second try."""
    root, run = write_images(tmp_path / "mine"), tmp_path / "run"
    (tmp_path / "mine/train/cat/=1+1.png").write_bytes(b"")
    assert main(["train", root, "--run", str(run), *SHORT]) == 2
    errors = capsys.readouterr().err
    assert "train/cat/=1+1.png: the file is empty" in errors
    assert f"All of them are in {run}/bad_images.csv." in errors
    assert (run / "bad_images.csv").read_text() == '"name","reason"\n"train/cat/=1+1.png","the file is empty"\n'
    assert main(["train", root, "--run", str(run), *SHORT, "--on-bad-image", "skip"]) == 0
    assert "1 image cannot be read: training goes on without." in capsys.readouterr().err
    assert (run / "bad_images.csv").exists()
    assert json.loads((run / "schema.json").read_text())["input_shape"] == [1, 12, 12]
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["image_size"] == 12
    assert main(["train", "--run", str(run), "--resume"]) == 0


def test_unreadable_images_neither_steer_the_terminal_nor_let_their_reader_speak(tmp_path, capsys):
    """Pillow warns of the second file, whose list of tags ends too early, before it gives up."""
    root = write_images(tmp_path / "mine")
    (tmp_path / "mine/train/cat/new\nline\x1b[2J.png").write_bytes(b"x")
    (tmp_path / "mine/train/cat/short.tif").write_bytes(b"II*\0\x08\0\0\0\xff\xff")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert main(["train", root, "--run", str(tmp_path / "run"), *SHORT]) == 2
    assert not [warning for warning in caught if "PIL" in Path(warning.filename).parts]
    assert "       train/cat/new\ufffdline\ufffd[2J.png: it is not in a format" in capsys.readouterr().err


def test_mistakes_are_sentences(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = write_table(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    for options, sentence in (
        (["gone.csv"], "There is no file gone.csv: check the path."),
        (["folder.csv"], "folder.csv is a folder, not a file: check the path."),
        (["gone"], "Unknown dataset (or file or folder of your own) 'gone'."),
        ([table, "--data.missing", "drop"], "choose one of 'error', 'impute'"),
        ([table, "--training.batch_size", "100"], "training.batch_size is 100, and there are 24 noisy examples: add"),
        ([table, "wine"], "There is no option 'wine'"),
    ):
        assert main(["train", *options]) == 2
        assert sentence in capsys.readouterr().err
    assert not Path("runs").exists()  # nothing is left of runs that did not start
