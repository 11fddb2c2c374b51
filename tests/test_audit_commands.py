"""audit, suggest, apply and the training after it, as a user types them."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest

from karat.cli import main
from karat.files.safe_csv import read_safe_csv, write_safe_csv

WINE = [
    *("--method", "ieg"),  # which weighs examples, too
    *("--data.name", "wine", "--data.trusted_per_class", "5", "--noise.kind", "symmetric", "--noise.rate", "0.4"),
    *("--training.batch_size", "20", "--training.device", "cpu", "--training.threads", "1", "--training.epochs", "4"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", *WINE, "--run", str(folder)]) == 0
    return folder


def test_audit_writes_the_same_files_again(run, tmp_path, capsys):
    names = ("label_issues.csv", "cleaned_labels.csv", "noise_estimate.json", "reliability.json")
    before = {name: (run / name).read_bytes() for name in names}
    for name in names:
        (run / name).unlink()
    assert main(["audit", str(run), "--pred-probs", str(tmp_path / "p.npy")]) == 0
    output = capsys.readouterr().out
    assert {name: (run / name).read_bytes() for name in names} == before
    estimate = json.loads(before["noise_estimate.json"])
    assert f"Wrong labels: {estimate['rate']:.1%} of 109" in output
    assert "15 trusted" in output
    changes = estimate["changes"]
    assert f"{changes['changed']:,} labels changed" in output
    assert f"{changes['review']:,} label issues are left for review" in output
    assert changes["error_rate"] == 0.05
    assert "The truth is known here. label_quality: expected calibration error 0." in output
    assert np.load(tmp_path / "p.npy").shape == (109, 3)


def test_the_share_of_errors_can_be_asked_for(run, tmp_path, capsys):
    """More errors allowed: no fewer changes. Without a number it is again the run's own."""
    arguments = ["audit", str(run), "--figure", str(tmp_path / "figure")]
    assert main([*arguments, "--audit.error_rate", "1"]) == 0
    assert "at most 100.0% asked for" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"figure.png", "figure.svg"}
    most = json.loads((run / "noise_estimate.json").read_text())["changes"]
    assert main(["audit", str(run)]) == 0
    assert "at most 5.0% asked for" in capsys.readouterr().out
    assert json.loads((run / "noise_estimate.json").read_text())["changes"]["changed"] <= most["changed"]
    assert main([*arguments, "--audit.error_rate", "5"]) == 2
    assert "audit.error_rate is 5.0: write a share from 0 to 1" in capsys.readouterr().err


def test_a_sample_is_drawn_and_estimated(run, tmp_path, capsys):
    """Somebody decides all rows by the truth that the run knows; the report then shows what that says."""
    assert main(["sample", str(run), "--count", "60"]) == 0
    assert f"karat estimate {run} decisions.csv" in capsys.readouterr().out
    assert (run / "sample.html").exists()
    truth = read_safe_csv(run / "noisy_labels.csv").set_index("index")["true_label"].astype(int)
    table = read_safe_csv(run / "sample.csv")
    labels = [f"class_{truth[row]}" for row in table["index"]]
    path = tmp_path / "decisions.csv"
    write_safe_csv(table.assign(decision="other", label=labels), path)
    assert main(["estimate", str(run), str(path)]) == 0
    assert "Wrong labels: " in (output := capsys.readouterr().out)
    assert "Right labels in cleaned_labels.csv" in output
    estimate = json.loads((run / "sample_estimate.json").read_text())
    rate = json.loads((run / "noise.json").read_text())["realised_rate"]
    assert estimate["wrong"]["low"] <= rate <= estimate["wrong"]["high"]
    assert main(["report", str(run)]) == 0
    assert "Verified noise rate" in (run / "report.html").read_text()
    write_safe_csv(table.assign(decision="other", label=labels).head(59), path)
    assert main(["estimate", str(run), str(path)]) == 2
    assert "no decision about 1 of the 60 rows" in capsys.readouterr().err


def test_the_ledger_knows_what_the_method_reports(run):
    issues = read_safe_csv(run / "label_issues.csv")
    assert issues["times_seen"].sum() == 4 * 6 * 20  # epochs, batches, examples in each
    assert issues["mean_weight"].notna().all()
    assert issues["mean_label_trust"].between(0, 1).all()
    assert set(issues["helpful_label"]) <= {"class_0", "class_1", "class_2"}
    assert (issues["mean_loss"] > 0).all()


def test_suggest_names_rows(run, capsys):
    assert main(["suggest", str(run), "--count", "6"]) == 0
    output = capsys.readouterr().out
    assert "Rows to verify next" in output
    rows = read_safe_csv(run / "suggestions.csv")
    assert len(rows) == 6
    assert main(["suggest", str(run), "--count", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_decisions_are_applied_and_trained_on(run, tmp_path, capsys):
    """The printed command trains with the verified rows as trusted ones, and adds no noise to the given labels."""
    issues = read_safe_csv(run / "label_issues.csv").head(5)
    table = pd.DataFrame({"id": issues["id"], "decision": "other", "label": "class_1"})
    write_safe_csv(table, tmp_path / "decisions.csv")
    assert main(["apply", str(run), str(tmp_path / "decisions.csv"), "--out", str(tmp_path)]) == 0
    command = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    assert command[:2] == ["karat", "train"]
    second = tmp_path / "second"
    assert main([*command[1:], "--training.epochs", "1", "--run", str(second)]) == 0
    cleaned = read_safe_csv(second / "cleaned_labels.csv").set_index("id")
    assert (cleaned["action"] == "trusted").sum() == 15 + 5
    assert set(cleaned.loc[issues["id"], "cleaned_label"]) == {"class_1"}
    before = read_safe_csv(run / "label_issues.csv").set_index("id")["given_label"]
    after = read_safe_csv(second / "label_issues.csv").set_index("id")["given_label"]
    assert (after == before[after.index]).all()
    assert json.loads((second / "results.json").read_text())["noise_rate"] is None


def test_the_cleaned_labels_of_a_run_can_be_trained_on(run, tmp_path):
    clean = ["--noise.kind", "none", "--noise.rate", "0", "--training.epochs", "1", "--run", str(tmp_path / "run")]
    assert main(["train", *WINE, *clean, "--data.corrections", str(run / "cleaned_labels.csv")]) == 0
    table = read_safe_csv(run / "cleaned_labels.csv")
    left = table[table["action"].isin(["kept", "changed"])].set_index("id")["cleaned_label"]
    after = read_safe_csv(tmp_path / "run" / "label_issues.csv").set_index("id")["given_label"]
    assert (after == left[after.index]).all()
    assert len(after) == len(left)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit", "nowhere"], "ledger.safetensors is missing"),
        (["suggest", "nowhere"], "Unknown dataset (or file or folder of your own) 'nowhere'"),
        (["sample", "nowhere"], "ledger.safetensors is missing"),
        (["estimate", "nowhere", "decisions.csv"], "ledger.safetensors is missing"),
        (["apply", "nowhere", "decisions.csv"], "ledger.safetensors is missing"),
    ],
)
def test_commands_say_what_is_missing(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_other_files_are_no_decisions_and_no_labels(run, tmp_path, capsys):
    assert main(["apply", str(run), str(tmp_path / "none.csv")]) == 2
    assert "There is no file" in capsys.readouterr().err
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert main(["apply", str(run), str(tmp_path / "x.csv")]) == 2
    assert "give id or index, decision and label" in capsys.readouterr().err
    options = ["--noise.kind", "none", "--noise.rate", "0", "--run", str(tmp_path / "r")]
    assert main(["train", *WINE, *options, "--data.corrections", str(tmp_path / "x.csv")]) == 2
    assert "data.corrections takes the labels.csv" in capsys.readouterr().err
    assert main(["train", *WINE, *options, "--data.labels_file", str(tmp_path / "x.csv")]) == 2
    assert "data.labels_file is now data.corrections." in capsys.readouterr().err
