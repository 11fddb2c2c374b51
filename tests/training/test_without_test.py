"""Data without test examples: everything works, and no accuracy is claimed."""

import json

import numpy as np
import pytest

from karat.bench.figures import write_figures
from karat.bench.recipe import read_recipe
from karat.bench.runner import _run_cell
from karat.bench.tables import read_results, report
from karat.cli import main
from karat.files.metrics_log import read_metrics


@pytest.fixture
def file(tmp_path):
    """Forty vectors whose first feature tells the class, and no test part."""
    labels = np.array(["cat", "dog"])[np.arange(40) % 2]
    vectors = np.random.default_rng(0).normal(size=(40, 3)) + 5 * (labels == "dog")[:, None]
    np.savez(tmp_path / "mine.npz", train_inputs=vectors, train_labels=labels, trusted=np.arange(40) < 8)
    return tmp_path / "mine.npz"


def test_a_run_measures_what_there_is(file, tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--data.validation_share", "0.25", "--training.batch_size", "12", "--training.device", "cpu"]
    assert main(["train", str(file), "--run", str(run), "--training.epochs", "3", *options]) == 0
    captured = capsys.readouterr()
    assert "Accuracy was not measured, because the data have no test rows: mark some with split=test" in captured.out
    assert f"karat evaluate {run} DATA" in captured.out
    assert "Test accuracy" not in captured.out
    results = json.loads((run / "results.json").read_text())
    assert results["selected"] is results["averaged"] is results["raw"] is results["validated"] is None
    assert results["trusted"]["count"] == 8
    for record in read_metrics(run / "metrics.jsonl"):
        assert not {"accuracy", "raw_accuracy", "top5"} & record.keys()
        assert {"trusted_accuracy", "validation_accuracy", "given_label_accuracy"} <= record.keys()
    for name in ("model.safetensors", "label_issues.csv", "report.html"):
        assert (run / name).exists()
    assert main(["evaluate", str(run)]) == 2
    assert "have no test examples: write karat evaluate" in capsys.readouterr().err
    assert main(["train", "--run", str(run), "--resume"]) == 0


def test_a_bench_has_a_dash_where_there_is_no_accuracy(file, tmp_path):
    (tmp_path / "own.yaml").write_text(
        f"settings: {{data.name: {file}, training.steps: 2, training.device: cpu}}\n"
        "columns: {own: {}}\nrows: {supervised: {}}\nfigures: [curves]\n"
    )
    recipe, folder = read_recipe(tmp_path / "own.yaml"), tmp_path / "bench"
    assert _run_cell(recipe.cells[0], folder / recipe.cells[0].folder) is None
    results = read_results(recipe, folder)
    assert results["last"].isna().all()
    assert "no accuracy was measured" in report(recipe, results, "karat bench own.yaml")
    assert len(write_figures(recipe, results, folder)) == 1
