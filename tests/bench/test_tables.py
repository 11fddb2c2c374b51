"""Tables: means and spreads by hand, the best of a column bold, the paper's results beside ours."""

import json
from pathlib import Path

import pandas as pd
import pytest

from karat.bench.recipe import read_recipe
from karat.bench.tables import markdown_table, mean_and_spread, read_results, report

TEXT = """
title: Two methods
note: A note.
paper: {table: cifar10_uniform}
settings: {data.name: wine}
columns:
  40%: {settings: {noise.kind: uniform, noise.rate: 0.4}, paper: {noise_ratio: 0.4}}
  80%: {settings: {noise.kind: uniform, noise.rate: 0.8}, paper: {noise_ratio: 0.8}}
rows:
  rog: {paper: {method: rog}}
  ieg: {paper: {method: ieg, network: wrn28-10, trusted_per_class: 10}}
  elr: {}
seeds: [0, 1, 2]
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "two.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return read_recipe(path)


def results_of(cell_folder: Path, last: float, selected: float, seconds: float, validated: float | None = None):
    def accuracy(top1):
        return {"top1": top1, "top5": 1.0, "loss": 0.5, "count": 54}

    found = {
        "selected": accuracy(selected), "averaged": accuracy(last), "raw": accuracy(0.25),
        "noise_rate": 0.375, "seconds": seconds,
        "validated": None if validated is None else accuracy(validated),
    }  # fmt: skip
    cell_folder.mkdir(parents=True)
    (cell_folder / "results.json").write_text(json.dumps(found))


def filled(recipe, folder: Path, accuracies: dict[str, float], **more) -> pd.DataFrame:
    for cell in recipe.cells:
        if cell.name in accuracies:
            last = accuracies[cell.name]
            results_of(folder / cell.folder, last, more.get("selected", last), 90.0, more.get("validated"))
    return read_results(recipe, folder)


def test_mean_and_spread_by_hand():
    """Of 90, 92 and 97: mean 93, deviations -3, -1, 4, their squares sum to 26, sqrt(26 / 2) = 3.6."""
    assert mean_and_spread([90.0, 92.0, 97.0]) == "93.0 ± 3.6"
    assert mean_and_spread([90.04]) == "90.0"


def test_results_have_a_line_for_each_finished_cell(recipe, tmp_path):
    results = filled(recipe, tmp_path, {"ieg/80%/1": 0.9, "elr/40%/0": 0.5})
    assert list(results.columns) == [
        *("row", "column", "seed", "last", "selected", "validated", "raw", "top5", "noise_rate", "seconds"),
        *("paper", "paper_std", "paper_top5", "only"),
    ]
    ieg = results[results["row"] == "ieg"].iloc[0]
    assert (ieg["column"], ieg["seed"], ieg["last"], ieg["raw"], ieg["top5"]) == ("80%", 1, 90.0, 25.0, 100.0)
    assert (ieg["noise_rate"], ieg["seconds"], ieg["only"]) == (0.375, 90.0, "ieg/80%/1")
    assert (ieg["paper"], ieg["paper_std"]) == (93.7, 0.5)  # table 1 of the paper
    elr = results[results["row"] == "elr"].iloc[0]
    assert pd.isna(elr["paper"])
    assert pd.isna(elr["validated"])


def test_the_table_has_the_best_in_bold_and_the_paper_beside(recipe, tmp_path):
    """Cells of one seed have no spread; (3) says how many seeds where their numbers differ; 90 s are 1.5 minutes."""
    accuracies = {"ieg/80%/0": 0.90, "ieg/80%/1": 0.92, "ieg/80%/2": 0.97, "elr/80%/0": 0.94, "rog/40%/0": 0.8}
    lines = markdown_table(recipe, filled(recipe, tmp_path, accuracies), "last").splitlines()
    assert lines == [
        "| | 40% | 80% | minutes a run |",
        "|---|---|---|---|",
        "| rog | **80.0** (paper 81.8) | – | 1.5 |",
        "| ieg | – (paper 95.9 ± 0.2) | 93.0 ± 3.6 (3) (paper 93.7 ± 0.5) | 1.5 |",
        "| elr | – | **94.0** | 1.5 |",
    ]


def test_equal_means_are_both_bold(recipe, tmp_path):
    table = markdown_table(recipe, filled(recipe, tmp_path, {"ieg/80%/0": 0.9, "elr/80%/0": 0.9}), "last")
    assert table.count("**90.0**") == 2


def test_the_report_shows_the_checkpoints_that_say_more(recipe, tmp_path):
    plain = report(recipe, filled(recipe, tmp_path / "a", {"ieg/80%/0": 0.9}), "karat bench two.yaml")
    assert plain.startswith("# Two methods\n\n`karat bench two.yaml`\n\nA note.\n")
    assert "(0, 1, 2); 1 of 18 runs are finished" in plain
    assert "## Last checkpoint" in plain
    assert "## Selected checkpoint" not in plain  # the same model
    assert "## Validated checkpoint" not in plain  # no validation examples
    more = filled(recipe, tmp_path / "b", {"ieg/80%/0": 0.9}, selected=0.8, validated=0.7)
    text = report(recipe, more, "karat bench two.yaml")
    for name, accuracy in {"Last": "90.0", "Selected": "80.0", "Validated": "70.0"}.items():
        assert f"**{accuracy}**" in text.split(f"## {name} checkpoint")[1].split("##")[0]
