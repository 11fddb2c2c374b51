"""The report of real runs: written after training, written again, with the user's own values."""

import json
import re

import numpy as np
import pandas as pd
from report_runs import HOSTILE, make_run

from karat.cli import main
from karat.report.page import write_report
from karat.report.pictures import FeatureRows
from karat.report.run_report import report_after_training, task_report
from karat.settings.config import Config, DataSettings
from karat.training.tasks import task_of

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


def write_cells(file, count=120):
    """Write a table whose labels are drawn at random, and whose cells a page could shorten, replace or run."""
    draw = np.random.default_rng(0)
    label = draw.choice(["no", "yes"], count)
    texts = [*HOSTILE, "x" * 10_000, "", "(another)"]
    frame = pd.DataFrame(
        {
            "code": [f"{row:04}" for row in range(count)],
            "amount": [f"{1234567 + row}" if row % 4 else "" for row in range(count)],
            "share": ["0.1" if row % 2 else "-1e-05" for row in range(count)],
            "town": [f"town {row}" if row % 3 else "Bonn" for row in range(count)],
            "note": [texts[row % len(texts)] for row in range(count)],
            "label": label,
            "trusted": pd.Series(label).groupby(label).cumcount() < 5,
            "id": [f"row {row}" for row in range(count)],
        }
    )
    frame.to_csv(file, index=False)
    return frame


def cells_of(folder):
    """Return what the review page shows of each row, by the user's name of it."""
    names = json.loads((folder / "report_files/rows-0000.js").read_text()[len("karatRows(") : -len(");\n")])["id"]
    values = json.loads((folder / "report_files/values-0000.js").read_text()[len("karatValues(0,") : -len(");\n")])
    return dict(zip(names, values, strict=True))


def test_the_report_shows_what_the_user_wrote(tmp_path):
    """Long numbers, leading zeros, rare levels and missing cells, after training and from the run folder alone."""
    frame, folder = write_cells(tmp_path / "mine.csv"), tmp_path / "run"
    short = ["--training.steps", "2", "--training.batch_size", "20", "--training.device", "cpu"]
    options = ["--data.missing", "impute", "--training.threads", "1", "--method", "supervised", "--run", str(folder)]
    assert main(["train", str(tmp_path / "mine.csv"), *short, *options]) == 0
    shown = cells_of(folder)
    assert len(shown) > 20
    columns = ["code", "amount", "share", "town", "note"]
    for row in frame[frame["id"].isin(shown)].itertuples():
        expected = [getattr(row, name) for name in columns]
        if len(row.note) > 5_000:
            expected[-1] = "x" * 2_000 + " … (10,000 characters)"
        assert shown[row.id] == expected
    page = (folder / "report.html").read_text()
    gallery = page[page.index('class="gallery"') :][:100_000]
    assert re.search(r"<dt><bdi>amount</bdi></dt><dd><bdi>12345\d\d</bdi>", gallery)
    assert re.search(r"<dt><bdi>code</bdi></dt><dd><bdi>0\d\d\d</bdi>", gallery)
    assert "e+06" not in gallery
    before = page, (folder / "report_files/values-0000.js").read_text()
    assert "<" not in before[1]
    assert main(["report", str(folder)]) == 0
    assert ((folder / "report.html").read_text(), (folder / "report_files/values-0000.js").read_text()) == before


def test_hostile_cells_are_escaped_in_the_gallery(tmp_path):
    table = make_run(tmp_path)
    features = FeatureRows(["note"], lambda rows, columns: [[HOSTILE[row % len(HOSTILE)]] for row in rows])
    text = write_report(tmp_path, features=features).read_text(encoding="utf-8")
    shown = [HOSTILE[row % len(HOSTILE)] for row in table[table["is_label_issue"]].head(24)["index"]]
    assert "<script>window.hacked = 1</script>" in shown
    assert text.count("<script") == 2
    assert "&lt;script&gt;window.hacked" in text
    assert "<img src=x" not in text


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
