"""Running a recipe: what is finished stays, what is killed goes on, what fails stops nothing else.

A process takes some seconds to import torch, so the tests share one bench and start as few of them as they can.
"""

import csv
import io
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from karat.bench import runner
from karat.bench.recipe import read_recipe
from karat.cli import main
from karat.files.checkpoints import load_checkpoint

RECIPE = """
settings:
  data: {name: wine, trusted_per_class: 5}
  training: {steps: 60, batch_size: 20, checkpoint_every: 3, device: cpu}
columns:
  50%: {settings: {noise.kind: symmetric, noise.rate: 0.5}}
rows:
  wild: {settings: {method: supervised, optimizer.rate: 1.0e+30}, seeds: [0]}  # diverges
  supervised: {}
  ieg: {}
seeds: [0, 1]
figures: [curves, label_trust]
"""
CALM = ["--only", "supervised", "ieg"]


@pytest.fixture(scope="module")
def recipe_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "wines.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def whole(recipe_path, tmp_path_factory):
    """A bench of the whole recipe, run once for all tests of this file: folder, exit code and what it said."""
    folder = tmp_path_factory.mktemp("bench") / "wines"
    said = io.StringIO()
    with redirect_stderr(said):
        code = main(["bench", str(recipe_path), "--out", str(folder), "--jobs", "2"])
    return folder, code, said.getvalue()


@pytest.fixture
def finished(whole):
    return whole[0]


def lines_without_time(folder: Path) -> list[dict[str, str]]:
    with open(folder / "results.csv") as file:
        return [{key: value for key, value in line.items() if key != "seconds"} for line in csv.DictReader(file)]


def table_without_time(folder: Path) -> str:
    return re.sub(r"[^|\n]*\|$", "", (folder / "table.md").read_text(), flags=re.MULTILINE)


def test_a_bench_leaves_its_table_figures_and_runs(finished):
    names = {path.name for path in finished.iterdir()}
    figures = {f"{name}-50.{kind}" for name in ("curves", "label_trust") for kind in ("png", "svg")}
    assert names == {"results.csv", "table.md", "cells", *figures}
    lines = lines_without_time(finished)
    cells = [f"{row}/50%/{seed}" for seed in (0, 1) for row in ("supervised", "ieg")]
    assert [line["only"] for line in lines] == cells
    assert all(0 < float(line["last"]) <= 100 for line in lines)
    assert "4 of 5 runs are finished" in (finished / "table.md").read_text()


def test_a_failing_cell_does_not_stop_the_others(whole):
    folder, code, said = whole
    assert code == 2
    assert "karat: wild/50%/0: Training diverged" in said
    assert not (folder / "cells/wild/50/seed-0/results.json").exists()
    assert len(lines_without_time(folder)) == 4


def test_a_finished_bench_runs_nothing(finished, recipe_path, capsys):
    results = sorted(finished.rglob("results.json"))
    assert len(results) == 4
    before = [path.stat().st_mtime_ns for path in results]
    assert main(["bench", str(recipe_path), "--out", str(finished), *CALM]) == 0
    assert [path.stat().st_mtime_ns for path in results] == before
    output = capsys.readouterr()
    assert "4 of the 5 cells of wines.yaml" in output.err
    assert "supervised" in output.out  # the table is shown all the same


def test_other_settings_in_an_old_folder_are_refused(finished, recipe_path, capsys):
    before = {path: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    options = ["--set", '{"methods.ieg.temperature": 0.7}', "--only", "ieg"]
    assert main(["bench", str(recipe_path), "--out", str(finished), *options]) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert "/50%/0 was run with other settings" in error
    assert "methods.ieg.temperature was 0.5 and is now 0.7" in error
    assert "choose another folder with --out" in error
    assert {path: path.read_bytes() for path in finished.iterdir() if path.is_file()} == before


KILLED = """
import os, signal, sys, threading
from karat.cli import main
from karat.files.checkpoints import load_checkpoint
from karat.training.trainer import Trainer

real = Trainer.train_step

def dying(trainer):
    if trainer.config.method == "ieg" and trainer.steps_done == 20:
        os.kill(os.getppid(), signal.SIGKILL)
        threading.Event().wait()  # until somebody ends this process, too
    return real(trainer)

Trainer.train_step = dying  # in the workers, which import this file as well
if __name__ == "__main__":
    main(sys.argv[1:])
"""


def test_a_killed_bench_goes_on_to_the_same_results(finished, recipe_path, tmp_path):
    """SIGKILL at step 20 of the second cell; the same command then gives what an undisturbed bench gave.

    The pipe has an end only when the worker that had been started is gone as well.
    """
    folder, script = tmp_path / "killed", tmp_path / "killed.py"
    script.write_text(KILLED)
    command = ["bench", str(recipe_path), "--out", str(folder), "--jobs", "1", *CALM]
    done = subprocess.run(
        [sys.executable, script, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stdout
    first, second = (folder / f"cells/{row}/50/seed-0" for row in ("supervised", "ieg"))
    assert load_checkpoint(second / "checkpoint.pt")["trainer"]["steps_done"] == 18
    assert not (second / "results.json").exists()
    kept = (first / "results.json").stat().st_mtime_ns

    assert main(command) == 0
    assert (first / "results.json").stat().st_mtime_ns == kept
    assert lines_without_time(folder) == lines_without_time(finished)
    assert table_without_time(folder) == table_without_time(finished)


def test_an_interrupt_ends_the_processes(recipe_path, tmp_path, monkeypatch, capsys):
    """The run that has begun is ended, too: the bench would otherwise wait for it, hours perhaps."""
    pools, started = [], []

    class Pool(runner.ProcessPoolExecutor):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            pools.append(self)

    def interrupted(*_, **__):
        started.extend(pools[0]._processes.values())
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(runner, "wait", interrupted)
    assert main(["bench", str(recipe_path), "--out", str(tmp_path / "bench"), "--jobs", "1"]) == 2
    assert "stopped; the same command goes on where it was." in capsys.readouterr().err
    assert len(started) == 1
    assert started[0].exitcode is not None
    assert not (tmp_path / "bench" / "results.csv").exists()


def test_a_gpu_gets_one_run_at_a_time(recipe_path, monkeypatch):
    on_cpu, anywhere = read_recipe(recipe_path), read_recipe(recipe_path, {"training.device": "auto"})
    monkeypatch.setattr(runner.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(runner.os, "sched_getaffinity", lambda _: range(7), raising=False)
    assert runner.default_jobs(anywhere) == 1
    assert runner.default_jobs(on_cpu) == 7
