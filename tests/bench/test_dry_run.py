"""The dry run: what each kind of cell would cost, measured on random data, and nothing written."""

from dataclasses import replace

import pytest

from karat.bench.dry_run import Cost, _extrapolated, _kinds, dry_run, measure
from karat.bench.random_data import SIZES, Size, random_task, size_of
from karat.bench.recipe import read_recipe
from karat.cli import main
from karat.errors import UserError
from karat.settings.config import Config, DataSettings, NoiseSettings

TEXT = """
title: Tiny
settings: {training.steps: 1000, training.batch_size: 50}
columns:
  wine: {settings: {data.name: wine, data.trusted_per_class: 5, noise.kind: symmetric, noise.rate: 0.5}}
  digits: {settings: {data.name: digits, noise.kind: semantic, noise.fraction: 0.02}}
rows:
  ieg: {}
  ieg, k = 5: {settings: {method: ieg, methods.ieg.consistency_weight: 5}}
  no consistency: {settings: {method: ieg, methods.ieg.consistency_weight: 0}, columns: [wine]}
seeds: [0, 1]
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return read_recipe(path)


def test_cells_of_equal_cost_are_one_kind(recipe):
    """Seeds and the size of k cost nothing; other data do, and a loss with weight 0 is not computed."""
    kinds = [{cell.name.rsplit("/", 1)[0] for cell in cells} for cells in _kinds(recipe.cells)]
    assert kinds == [{"ieg/wine", "ieg, k = 5/wine"}, {"ieg/digits", "ieg, k = 5/digits"}, {"no consistency/wine"}]


def test_costs_are_measured_and_nothing_is_written(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reported: list[Cost] = []
    (cost,) = dry_run(recipe.only(["ieg/wine"]), reported.append)
    assert reported == [cost]
    assert cost.size == Size((13,), 3, 124)
    assert (cost.method, cost.batch, cost.steps, len(cost.cells)) == ("ieg", 50, 1000, 2)
    assert cost.seconds_a_step > 0
    assert cost.days == cost.seconds_a_step * 1000 / 86_400
    assert cost.parameters > 1000
    assert list(tmp_path.iterdir()) == []


def test_semantic_noise_trains_no_labeller(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("KARAT_CACHE", str(tmp_path / "cache"))
    assert size_of(recipe.only(["ieg/digits"]).cells[0].config) == Size((1, 12, 12), 10, 1300)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_a_line_a_kind(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", str(recipe.path), "--dry-run", "--only", "ieg/wine"]) == 0
    printed = capsys.readouterr().out
    assert "Tiny: estimates for one thread of this machine" in printed
    assert "All 2 runs: about" in printed
    assert "Nothing was trained." in printed
    assert list(tmp_path.iterdir()) == []


def test_the_cost_of_the_real_batch_lies_on_a_line_through_the_measured_ones():
    """Batches of 2 and 8 take 3 and 9 s: 1 s an example and 1 s once, so 70 examples take 71 s.

    From 1 and 8 s the line would give 80.3 s, more than 70/8 times the 8 s of a batch of 8: at most 70 s.
    """
    assert _extrapolated([3.0, 9.0], 70) == pytest.approx(71)
    assert _extrapolated([1.0, 8.0], 70) == 70.0
    assert _extrapolated([8.0, 3.0], 70) == 3.0
    assert _extrapolated([3.0, 8.0], 8) == 8.0


@pytest.mark.parametrize(("method", "steps"), [("supervised", 2), ("trusted_finetune", 4)])
def test_the_slowest_step_after_the_first_is_the_time_of_a_step(method, steps):
    """The clock's readings are 0 1 3 7 15 ...: step k takes 2^(k−1), the last one longest; each phase has two."""
    times = (2**n - 1 for n in range(100))
    config = Config(method, model="mlp-8", data=DataSettings("wine", trusted_per_class=5))
    found = measure(config, 2, clock=lambda: float(next(times)))
    assert found.seconds == 2 ** (steps - 1)


def test_sizes_of_data_that_need_not_be_here():
    cifar = Config(data=DataSettings("cifar100"), noise=NoiseSettings("uniform", 0.8))
    assert size_of(cifar) == SIZES["cifar100"]
    assert size_of(replace(cifar, data=DataSettings("cifar100", limit=500))).examples == 500
    assert size_of(Config(data=DataSettings("webvision_mini", image_size=299))).shape == (3, 299, 299)


def test_random_data_have_every_class_trusted():
    task = random_task(Size((3, 8, 8), 1000, 10_000), batch=4)
    assert sorted(task.trusted.labels.tolist()) == list(range(1000))
    assert task.noisy.inputs.shape == (16, 3, 8, 8)
    assert task.trusted.inputs[task.trusted.labels[-3:]].shape == (3, 3, 8, 8)


def test_data_of_unknown_size_are_said(tmp_path, capsys):
    (tmp_path / "own.yaml").write_text("settings: {data.name: own.npz}\ncolumns: {a: {}}\nrows: {gce: {}}")
    assert main(["bench", str(tmp_path / "own.yaml"), "--dry-run"]) == 2
    assert "gce/a/0" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"own\.npz"):
        size_of(Config(data=DataSettings("own.npz")))
