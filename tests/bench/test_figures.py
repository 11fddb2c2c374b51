"""Figures of a recipe, from fabricated metrics: which files are written, and what lines they have."""

import json

import pytest
from numpy.testing import assert_allclose

from karat.bench.figures import _curves, _label_trust, _mean_records, _over_minutes, _over_noise, write_figures
from karat.bench.recipe import read_recipe
from karat.bench.tables import read_results

TEXT = """
settings: {data.name: wine}
columns:
  clean: {settings: {noise.kind: none}}
  40%: {settings: {noise.kind: uniform, noise.rate: 0.4}}
  80%: {settings: {noise.kind: uniform, noise.rate: 0.8}}
  pairs: {settings: {noise.kind: asymmetric, noise.rate: 0.4}}
rows: {supervised: {}, ieg: {}}
seeds: [0, 1]
figures: [noise, minutes, curves, label_trust]
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "all.yaml").write_text(TEXT, encoding="utf-8")
    return read_recipe(tmp_path / "all.yaml")


def finish(cell, folder):
    """Write a run of two evaluations whose accuracy is 0.5 + 0.1 · seed, 0.2 more at the second one."""
    (folder / cell.folder).mkdir(parents=True)
    accuracy = {"top1": 0.7 + 0.1 * cell.seed, "top5": 1.0}
    results = {"selected": accuracy, "averaged": accuracy, "raw": accuracy, "noise_rate": 0.4, "seconds": 3.0}
    (folder / cell.folder / "results.json").write_text(json.dumps(results))
    trust = {"clean_label_trust": 0.8, "mislabelled_label_trust": 0.3} if cell.row == "ieg" else {}
    records = [
        {"epoch": epoch, "accuracy": 0.3 + 0.2 * epoch + 0.1 * cell.seed, "given_label_accuracy": 0.4, **trust}
        for epoch in (1, 2)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / cell.folder / "metrics.jsonl").write_text(lines)


def test_every_kind_of_figure_is_written(recipe, tmp_path):
    for cell in recipe.cells:
        if cell.column in ("clean", "80%"):
            finish(cell, tmp_path)
    written = write_figures(recipe, read_results(recipe, tmp_path), tmp_path)
    names = {
        "accuracy-over-uniform",
        "accuracy-over-minutes",
        "curves-clean",
        "curves-80",
        "label_trust-clean",
        "label_trust-80",
    }
    assert {path.name for path in written} == {f"{name}.png" for name in names}
    for path in written:
        assert path.stat().st_size > 0
        assert path.with_suffix(".svg").exists()


def test_accuracy_over_noise_has_means_at_the_ratios(recipe, tmp_path):
    """The clean column is ratio 0; seeds 0 and 1 have 0.7 and 0.8, mean 0.75."""
    for cell in recipe.cells:
        finish(cell, tmp_path)
    figure = _over_noise(recipe, read_results(recipe, tmp_path))["accuracy-over-uniform"]
    bars = figure.axes[0].containers  # one a row
    assert [bar.get_label() for bar in bars] == ["supervised", "ieg"]
    assert_allclose(bars[0].lines[0].get_xydata(), [[0, 0.75], [0.4, 0.75], [0.8, 0.75]])


def test_accuracy_over_minutes_has_a_point_for_each_column(recipe, tmp_path):
    """Columns in the order of the time that they took; the mean of both seeds, 0.75, at the mean of their minutes."""
    seconds = {"clean": 120.0, "40%": 30.0}
    for cell in recipe.cells:
        if cell.row == "ieg" and cell.column in seconds:
            finish(cell, tmp_path)
            file = tmp_path / cell.folder / "results.json"
            file.write_text(
                json.dumps({**json.loads(file.read_text()), "seconds": seconds[cell.column] * (1 + cell.seed)})
            )
    (line,) = _over_minutes(recipe, read_results(recipe, tmp_path))["accuracy-over-minutes"].axes[0].lines
    assert line.get_label() == "ieg"
    assert_allclose(line.get_xydata(), [[0.75, 0.75], [3, 0.75]])


def test_curves_are_means_over_the_finished_seeds(recipe, tmp_path):
    """At epoch 1 the seeds have 0.5 and 0.6, at epoch 2 0.7 and 0.8; an unfinished cell is left out."""
    for cell in recipe.cells:
        if cell.column == "80%" and cell.name != "supervised/80%/1":
            finish(cell, tmp_path)
    figures = _curves(recipe, tmp_path)
    assert list(figures) == ["80"]
    lines = {line.get_label(): line for line in figures["80"].axes[0].lines}
    assert_allclose(lines["ieg"].get_xydata(), [[1, 0.55], [2, 0.75]])
    assert_allclose(lines["supervised"].get_xydata(), [[1, 0.5], [2, 0.7]])


def test_label_trust_is_that_of_the_rows_that_have_some(recipe, tmp_path):
    for cell in recipe.cells:
        if cell.column == "40%":
            finish(cell, tmp_path)
    (figure,) = _label_trust(recipe, tmp_path).values()
    assert [line.get_label() for line in figure.axes[0].lines] == ["right labels", "wrong labels"]
    assert figure.axes[0].lines[1].get_ydata() == pytest.approx([0.3, 0.3])


def test_one_ratio_has_no_curve_over_noise(recipe, tmp_path):
    finish(recipe.cells[0], tmp_path)
    assert _over_noise(recipe, read_results(recipe, tmp_path)) == {}


def test_a_value_that_one_seed_lacks_is_left_out():
    runs = [[{"epoch": 1, "a": 0.5, "b": None}], [{"epoch": 1, "a": 1.0, "b": 0.5, "c": 1}, {"epoch": 2, "a": 0}]]
    assert _mean_records(runs) == [{"epoch": 1, "a": 0.75}]
