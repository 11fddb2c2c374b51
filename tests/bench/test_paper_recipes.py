"""The recipes of the paper: every number of its tables is a cell that one command starts."""

from functools import cache
from pathlib import Path

import pytest

from karat.bench.paper import matching_lines, paper_lines
from karat.bench.recipe import read_recipe
from karat.data.datasets import DATASETS

PATHS = sorted((Path(__file__).parents[2] / "recipes" / "paper").glob("*.yaml"))
TABLES = {line["table"] for line in paper_lines()}
FIGURES = {"schedules", "consistency_k", "label_trust"}


@cache
def recipe(path):
    return read_recipe(path)  # each cell's settings are checked, which takes a while


def first_seed(path):
    return [cell for cell in recipe(path).cells if cell.seed == 0]


def test_each_table_and_each_figure_has_its_recipe():
    assert {path.stem for path in PATHS} == TABLES | FIGURES


def test_every_line_of_the_paper_is_a_cell():
    reached = [
        line for path in PATHS for cell in first_seed(path) if "method" in cell.paper
        for line in matching_lines(cell.paper)
    ]  # fmt: skip
    assert [line for line in paper_lines() if line not in reached] == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_cell_is_what_its_line_of_the_paper_says(path):
    """Where a line of the paper stands beside a cell, dataset, network, noise and trusted examples are the line's.

    `open_set` gives no ratio and `semantic` a realised one; a network or a number that the paper does not name, or 0
    trusted examples, leaves the choice to the recipe; MixMatch-KL never sees the noisy labels, so its ratio is free.
    """
    for cell in first_seed(path):
        lines = matching_lines(cell.paper) if "method" in cell.paper else []
        if not lines:
            continue
        (line,) = lines
        config = cell.config
        assert config.data.name.replace("_", "-") == line["dataset"], cell.name
        network = config.model.replace("-", "").replace("_", "")
        assert not line["network"] or network == line["network"].replace("-", "").replace("_", ""), cell.name
        assert line["method"] in (config.method, cell.row.split()[0]), cell.name
        if line["noise_type"] in ("uniform", "asymmetric") and config.method != "mixmatch_kl":
            assert config.noise.rate == float(line["noise_ratio"]), cell.name
            assert config.noise.kind == (line["noise_type"] if config.noise.rate else "none"), cell.name
        if line["noise_type"].startswith("open_set"):
            assert f"open_set:{config.noise.source}" == line["noise_type"], cell.name
        if line["trusted_per_class"] not in ("", "0"):
            assert config.data.trusted_per_class == int(line["trusted_per_class"]), cell.name
        assert config.optimizer.schedule == "cosine_restarts", cell.name
        assert config.training.batch_size == 100, cell.name


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_recipe_begins_with_commands_that_hold(path):
    text = path.read_text(encoding="utf-8")
    head = text.split("\n\n")[0]
    assert f'karat bench recipes/paper/{path.name} --set \'{{"data.path"' in head
    assert "docs/datasets.md" in head
    assert "Not run here in full: a GPU job; --dry-run prints what it takes." in head
    named = head.split("--only '")[1].split("'")[0]
    assert len(recipe(path).only([named]).cells) == 1
    assert {cell.config.data.name for cell in recipe(path).cells} <= DATASETS.keys()


def test_both_readings_of_webvision_are_kept():
    """Text: p = 4, k = 8 for mini and 0.4 for full; appendix: p = 4, k = 40 for mini and 4 for full."""
    path = next(path for path in PATHS if path.stem == "webvision")
    found = {
        (cell.row.split(", ")[1], cell.column, cell.config.methods.ieg.consistency_weight): None
        for cell in recipe(path).cells
        if cell.config.method == "ieg"
    }
    assert set(found) == {("text", "mini", 8), ("text", "full", 0.4), ("appendix", "mini", 40), ("appendix", "full", 4)}
    assert {c.config.methods.ieg.mixed_noisy_weight for c in recipe(path).cells if c.config.method == "ieg"} == {4}
    sizes = {(c.config.model, c.config.data.image_size) for c in recipe(path).cells}
    assert sizes == {("resnet-50", None), ("inception-resnet-v2", 299)}
