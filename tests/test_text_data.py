"""Texts from the first command to the last, as a user meets them."""

import json

import numpy as np
import pandas as pd
import pytest

from karat import KaratClassifier, load_model
from karat.cli import main
from karat.files.safe_csv import read_safe_csv

WORDS = {"fruit": ["apple", "pear", "plum", "cherry"], "tool": ["hammer", "saw", "drill", "pliers"]}
SHORT = ["--training.device", "cpu", "--training.threads", "1"]


def rows(count=120, wrong=0.25, seed=0):
    """Return texts of two classes, a quarter of the labels wrong, and which were verified."""
    random = np.random.default_rng(seed)
    true = np.array([*WORDS])[np.arange(count) % 2]
    texts = [" ".join(random.choice([*WORDS[name], "the", "a", "some"], 6)) + f" {WORDS[name][0]}" for name in true]
    trusted = np.arange(count) < 12
    flip = (random.random(count) < wrong) & ~trusted
    given = np.where(flip, np.where(true == "fruit", "tool", "fruit"), true)
    return pd.DataFrame({"text": texts, "label": given, "trusted": trusted}), true


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    table, _ = rows()
    table.loc[20, "text"] = "<script>alert(1)</script> apple plum"
    table.to_csv(folder / "mine.csv", index=False)
    assert main(["train", str(folder / "mine.csv"), "--run", str(folder / "run"), *SHORT]) == 0
    (folder / "mine.csv").rename(folder / "moved.csv")  # a prediction needs the run folder alone
    return folder / "run"


def test_nothing_is_trained_and_wrong_labels_are_found(run):
    _, true = rows()
    assert json.loads((run / "plan.json").read_text())["model"] == "linear"
    issues = read_safe_csv(run / "label_issues.csv")
    wrong = issues["given_label"] != true[issues["index"]]
    assert (issues["is_label_issue"] == wrong).mean() > 0.95


def test_new_texts_are_predicted_from_tables_folders_and_files(run, tmp_path):
    for name, text in (("one.txt", "a ripe plum and a pear"), ("two.md", "hammer and saw")):
        (tmp_path / name).write_text(text)
    pd.DataFrame({"text": ["a cherry", "the drill"], "id": ["x", "y"]}).to_parquet(tmp_path / "new.parquet")
    (tmp_path / "new.jsonl").write_text('{"text": "a cherry"}\n\n{"text": "the drill"}\n')
    for data, names in ((tmp_path, ["one.txt", "two.md"]), (tmp_path / "new.parquet", ["x", "y"])):
        assert main(["predict", str(run), str(data), "--out", str(tmp_path / "out.csv")]) == 0
        found = read_safe_csv(tmp_path / "out.csv")
        assert found["id"].tolist() == names
        assert found["predicted_label"].tolist() == ["fruit", "tool"]
        (tmp_path / "out.csv").unlink()
    assert main(["predict", str(run), str(tmp_path / "one.txt"), "--out", str(tmp_path / "out.csv")]) == 0
    assert main(["predict", str(run), str(tmp_path / "new.jsonl"), "--out", str(tmp_path / "out.csv")]) == 0
    model = load_model(run)
    assert model.predict(["a cherry", "the drill"]) == ["fruit", "tool"]


def test_a_run_on_texts_is_measured_and_reviewed(run, tmp_path, capsys):
    table, _ = rows(40, wrong=0.0, seed=1)
    table.drop(columns="trusted").to_csv(tmp_path / "checked.csv", index=False)
    assert main(["evaluate", str(run), str(tmp_path / "checked.csv")]) == 0
    assert "accuracy" in capsys.readouterr().out.lower()
    assert main(["suggest", str(run), "--count", "5"]) == 0
    issue = read_safe_csv(run / "label_issues.csv").iloc[0]
    decided = {"id": [issue["id"]], "index": [issue["index"]], "given_label": [issue["given_label"]]}
    decided |= {"decision": ["accept"], "label": [issue["suggested_label"]]}
    pd.DataFrame(decided).to_csv(tmp_path / "decisions.csv", index=False)
    assert main(["apply", str(run), str(tmp_path / "decisions.csv"), "--out", str(tmp_path / "labels.csv")]) == 0
    assert "<script>alert" not in (run / "report.html").read_text()


def test_a_folder_of_text_files_by_class(tmp_path):
    table, _ = rows(60)
    for number, (text, label, trusted) in enumerate(table.itertuples(index=False)):
        file = tmp_path / "mine" / ("trusted" if trusted else "train") / label / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert main(["train", str(tmp_path / "mine"), "--run", str(tmp_path / "run"), *SHORT]) == 0
    assert (tmp_path / "run" / "text.safetensors").exists()


def test_lists_of_texts_in_the_estimator():
    table, true = rows()
    texts, trusted = table["text"].tolist(), table["trusted"].to_numpy()
    classifier = KaratClassifier(random_state=0).fit(texts, table["label"], trusted=trusted)
    assert classifier.score(texts, true) > 0.95
    assert classifier.predict(["plum and pear"]).tolist() == ["fruit"]
    pair = (table["text"][trusted].tolist(), table["label"][trusted].tolist())
    again = KaratClassifier(random_state=0).fit(table["text"][~trusted], table["label"][~trusted], trusted=pair)
    assert again.predict(["hammer"]).tolist() == ["tool"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.assign(text=table["text"].where(table.index != 30, "")), "row 30: there is no text in it"),
        (
            lambda table: table.assign(text=table["text"].where(table.index != 30, "x " * 5_000_000)),
            "cut it into parts",
        ),
        (lambda table: table.assign(text=""), "120 rows have no text"),
    ],
)
def test_rows_without_a_text_that_can_be_read_are_named(tmp_path, capsys, change, said):
    change(rows()[0]).to_csv(tmp_path / "mine.csv", index=False)
    assert main(["train", str(tmp_path / "mine.csv"), "--run", str(tmp_path / "run"), *SHORT]) == 2
    assert said in capsys.readouterr().err


def test_rows_without_text_can_be_left_out(tmp_path):
    table = rows()[0]
    table.loc[30, "text"] = ""
    table.to_csv(tmp_path / "mine.csv", index=False)
    command = ["train", str(tmp_path / "mine.csv"), "--run", str(tmp_path / "run"), "--on-bad-image", "skip", *SHORT]
    assert main(command) == 0
    assert len(read_safe_csv(tmp_path / "run" / "cleaned_labels.csv")) == 119


def test_an_encoder_that_is_not_there_is_one_sentence(tmp_path, capsys):
    rows()[0].to_csv(tmp_path / "mine.csv", index=False)
    command = ["train", str(tmp_path / "mine.csv"), "--run", str(tmp_path / "run"), "--data.encoder", "nobody/none"]
    assert main([*command, *SHORT]) == 2
    assert "The encoder nobody/none" in capsys.readouterr().err


def test_json_lines_that_are_none_are_one_sentence(tmp_path, capsys):
    (tmp_path / "mine.jsonl").write_text('{"text": "a"}\n[1]\n')
    assert main(["train", str(tmp_path / "mine.jsonl"), "--run", str(tmp_path / "run"), *SHORT]) == 2
    assert "line 2 is no object" in capsys.readouterr().err


def test_numbers_for_a_model_of_texts_are_refused(run, tmp_path, capsys):
    pd.DataFrame({"x": [1.0]}).to_csv(tmp_path / "new.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")]) == 2
    assert "no column 'text'" in capsys.readouterr().err
