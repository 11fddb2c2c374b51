"""The report of real runs: written after training, written again, with the user's own values."""

import json

import torch

from karat.cli import main
from karat.data.schema import Column
from karat.report.run_report import column_values, report_after_training, task_report
from karat.settings.config import Config, DataSettings
from karat.training.run import task_of

WINE = [
    *("--data.name", "wine", "--data.trusted_per_class", "5", "--noise.kind", "symmetric", "--noise.rate", "0.5"),
    *("--training.batch_size", "20", "--training.device", "cpu", "--training.threads", "1", "--training.epochs", "2"),
]


def test_a_run_ends_with_a_report_that_can_be_made_again(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", *WINE, "--run", str(folder)]) == 0
    first = (folder / "report.html").read_bytes()
    assert (folder / "report_files" / "values-0000.js").exists()
    assert json.loads((folder / "results.json").read_text())["peak_memory"] > 2**20

    assert main(["report", str(folder)]) == 0
    assert str(folder / "report.html") in capsys.readouterr().out
    assert (folder / "report.html").read_bytes() == first

    assert main(["report", str(folder), "--no-pictures", "--compare", str(folder)]) == 0
    assert not (folder / "report_files" / "values-0000.js").exists()
    assert b"Compared with other runs" in (folder / "report.html").read_bytes()

    (folder / "results.json").unlink()
    assert main(["report", str(folder)]) == 2
    assert "not finished" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nowhere")]) == 2


def test_a_report_that_cannot_be_written_spoils_no_run(tmp_path, caplog):
    report_after_training(task_of(Config(data=DataSettings("wine", trusted_per_class=5))), tmp_path)
    assert "The run is complete, but its report is not written" in caplog.text


def test_values_are_those_that_the_user_wrote():
    """age = 0.5 · 10 + 40; the second row has no age (its input says so) and a town that was not seen in training."""
    columns = [
        Column("age", "number", mean=40, scale=10, fill=40.0),
        Column("town", "category", levels=("Bonn", "Rome"), other=True),
    ]
    inputs = torch.tensor([[0.5, 0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0, 1.0]])
    assert column_values(columns, inputs) == [[45.0, "Rome"], [None, "(another)"]]


def test_images_are_shown_as_bytes(tmp_path, monkeypatch):
    """Inputs are in [-1, 1]: -1 is black, 1 is white."""
    task = task_of(Config())
    shown = {}
    monkeypatch.setattr("karat.report.run_report.write_report", lambda folder, **options: shown.update(options))
    task_report(task, tmp_path)
    rows = task.noisy_rows[:3].tolist()
    images = shown["thumbnail"](rows)
    expected = ((task.noisy.inputs[:3, 0] + 1) / 2 * 255).round().byte().numpy()
    assert all((image == right).all() for image, right in zip(images, expected, strict=True))
    assert shown["features"] is None
