"""Data without a trusted row: trained on, suggested from, reviewed, and trained on again with verified rows."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.datasets import make_blobs

from karat.cli import main
from karat.files.safe_csv import read_safe_csv, write_safe_csv
from karat.training import first_look


def table(file, rows=120, wrong=0.3):
    """Write three clusters with noisy labels and no trusted row; return the true labels by id."""
    X, true = make_blobs(rows, centers=3, cluster_std=1.0, center_box=(-8, 8), random_state=3)
    draw, names = np.random.default_rng(0), np.array(["ant", "bee", "cat"])
    given = np.where(draw.random(rows) < wrong, draw.integers(0, 3, rows), true)
    frame = pd.DataFrame(X, columns=["x", "y"]).assign(label=names[given], id=[f"row {n}" for n in range(rows)])
    frame.to_csv(file, index=False)
    return dict(zip(frame["id"], names[true], strict=True))


def pictures(root):
    """Write striped images, every fourth in the wrong folder; return the true labels by name."""
    draw, true = np.random.default_rng(0), {}
    for number in range(60):
        name = ("lying", "standing")[number % 2]
        folder = ("standing", "lying")[number % 2] if number % 8 < 2 else name
        (root / folder).mkdir(parents=True, exist_ok=True)
        stripes = 150 * (np.indices((8, 8))[number % 2] // 2 % 2)
        pixels = draw.integers(0, 60, (8, 8)) + stripes
        Image.fromarray(pixels.astype(np.uint8)).save(root / folder / f"{number}.png")
        true[f"{folder}/{number}.png"] = name
    return true


@pytest.mark.parametrize(("kind", "write"), [("mine.csv", table), ("mine", pictures)])
def test_from_data_to_verified_rows_to_a_run(tmp_path, capsys, kind, write):
    true = write(tmp_path / kind)
    first, run = tmp_path / "first", tmp_path / "run"
    assert main(["suggest", str(tmp_path / kind), "--count", "12", "--run", str(first)]) == 0
    assert "typical of" in capsys.readouterr().out
    rows = read_safe_csv(first / "suggestions.csv")
    assert len(rows) == 12
    assert set(rows["likely_label"]) == set(true.values())
    typical = rows[rows["reason"].str.startswith("typical of")]
    assert len(typical) == 8
    assert typical["likely_label"].tolist() == [true[name] for name in typical["id"]]
    # the review page has these rows first
    shown = (first / "report_files" / "rows-0000.js").read_text()
    assert json.loads(shown.removeprefix("karatRows(").removesuffix(");\n"))["id"][:12] == rows["id"].tolist()

    decisions = rows[["id", "index"]].assign(decision="other", label=[true[name] for name in rows["id"]])
    write_safe_csv(decisions, tmp_path / "decisions.csv")
    assert main(["apply", str(first), str(tmp_path / "decisions.csv")]) == 0
    assert "12 of" in capsys.readouterr().out
    labels = ["--config", str(first / "config.yaml"), "--data.corrections", str(first / "labels.csv")]
    assert main(["train", *labels, "--training.epochs", "2", "--run", str(run)]) == 0
    cleaned = read_safe_csv(run / "cleaned_labels.csv").set_index("id")
    assert (cleaned["action"] == "trusted").sum() == 12
    kept = cleaned[cleaned["action"] == "changed"]
    assert all(kept["cleaned_label"] == [true[name] for name in kept.index])


def test_a_run_without_a_trusted_row_says_so_and_names_the_first_rows(tmp_path, capsys):
    true = table(tmp_path / "mine.csv")
    data, run = str(tmp_path / "mine.csv"), tmp_path / "run"
    assert main(["train", data, "--training.epochs", "3", "--run", str(run)]) == 0
    sentence = "No row is trusted: labels count as right more often than wrong in any one way"
    assert sentence in capsys.readouterr().err
    assert sentence in (run / "report.html").read_text()
    assert main(["audit", str(run)]) == 0
    assert sentence in capsys.readouterr().out
    assert main(["suggest", str(run), "--count", "6"]) == 0
    rows = read_safe_csv(run / "suggestions.csv")
    assert rows["reason"].str.startswith("typical of").sum() == 4
    assert "typical of" in (run / "suggestions.csv").read_text()
    assert main(["predict", str(run), data, "--out", str(tmp_path / "out.csv")]) == 0
    predicted = read_safe_csv(tmp_path / "out.csv")
    assert (
        np.mean([true[name] == label for name, label in zip(predicted["id"], predicted.iloc[:, 1], strict=True)]) > 0.9
    )


def test_images_without_a_trusted_row_are_trained_on(tmp_path):
    true = pictures(tmp_path / "mine")
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "mine"), "--training.epochs", "6", "--run", str(run)]) == 0
    issues = read_safe_csv(run / "label_issues.csv")
    assert (issues["predicted_label"] == [true[name] for name in issues["id"]]).mean() > 0.9


def test_without_the_data_rows_are_chosen_by_the_ledger(tmp_path, capsys, caplog):
    table(tmp_path / "mine.csv")
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "mine.csv"), "--training.epochs", "1", "--run", str(run)]) == 0
    (tmp_path / "mine.csv").unlink()
    assert main(["suggest", str(run), "--count", "5"]) == 0
    assert "Rows are chosen without a look at the data" in caplog.text
    assert len(read_safe_csv(run / "suggestions.csv")) == 5


def test_a_look_is_at_some_of_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(first_look, "LOOKED_AT", 60)
    table(tmp_path / "mine.csv")
    folder = tmp_path / "first"
    assert main(["suggest", str(tmp_path / "mine.csv"), "--run", str(folder)]) == 0
    issues = read_safe_csv(folder / "label_issues.csv")
    assert len(issues) == 60
    assert issues["given_label"].value_counts().tolist() == [20, 20, 20]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (["digit"], "Did you mean 'digits'?"),
        (["RUN", "--data.limit", "5"], "is the folder of a run, and --data.limit is for data: leave it out"),
        (["RUN", "--run", "there"], "is the folder of a run, and --run is for data: leave it out"),
        (["DATA", "--run", "RUN"], "is not empty: choose another run folder"),
        (["DATA", "--count", "0"], "ask for at least 1 row"),
    ],
)
def test_mistakes_are_said(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "mine.csv", rows=30)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "run" / "model.safetensors").write_text("")
    named = {"RUN": "run", "DATA": "mine.csv"}
    assert main(["suggest", *[named.get(option, option) for option in options]]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("method", ["ieg", "trusted_only"])
def test_methods_that_need_trusted_rows_name_the_way(tmp_path, capsys, method):
    table(tmp_path / "mine.csv", rows=30)
    assert main(["train", str(tmp_path / "mine.csv"), "--method", method, "--run", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert f"Method {method} needs trusted examples of every class, and 3 of 3 classes have none" in error
    assert "`karat suggest DATA`" in error
    assert "--method karat" in error


def test_methods_that_need_none_run_without(tmp_path):
    table(tmp_path / "mine.csv", rows=30)
    run = tmp_path / "run"
    assert (
        main(["train", str(tmp_path / "mine.csv"), "--method", "gce", "--training.epochs", "1", "--run", str(run)]) == 0
    )
    assert json.loads((run / "results.json").read_text())["trusted"] is None
