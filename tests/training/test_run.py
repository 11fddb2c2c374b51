"""A run measured again: the saved model, nothing trained; and what its listener writes."""

import json
import shutil

import numpy as np
import pytest

from karat.files.metrics_log import MetricsLog, read_metrics
from karat.methods.karat.method import Karat
from karat.settings.config import Config, DataSettings, TrainingSettings
from karat.training.fit import Listener, fit
from karat.training.measured import evaluate_run
from karat.training.run import RunListener, train_run
from karat.training.run_checkpoint import identity, save_with_ledger
from karat.training.tasks import task_of
from karat.training.trainer import Trainer


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of Karat on sixty vectors, and its config."""
    folder = tmp_path_factory.mktemp("run")
    arrays(folder / "mine.npz", seed=0)
    training = TrainingSettings(steps=12, batch_size=20, device="cpu", threads=1)
    config = Config("karat", model="mlp-8", data=DataSettings(str(folder / "mine.npz")), training=training)
    train_run(config, folder / "run", report=False)
    return folder / "run", config


def arrays(path, seed):
    """Write vectors whose first feature tells the class; the seed is that of the test part alone."""
    labels = np.arange(60) % 2
    train, test = (np.random.default_rng(s).normal(size=(60, 3)) + 1.5 * labels[:, None] for s in (9, seed))
    parts = {"train_inputs": train, "train_labels": labels, "test_inputs": test, "test_labels": labels}
    np.savez(path, **parts, trusted=np.arange(60) < 12)


def test_the_saved_model_is_measured_and_nothing_is_fitted(finished, monkeypatch):
    folder, config = finished
    for name in ("look", "_hear", "step"):
        monkeypatch.setattr(Karat, name, None)
    monkeypatch.setattr("karat.training.measured.Trainer", None)
    found = evaluate_run(config, folder)
    stored = json.loads((folder / "results.json").read_text())
    assert list(found) == ["selected", "averaged", "raw"]
    for name, accuracy in found.items():
        assert accuracy.top1 == stored[name]["top1"]
        assert accuracy.loss == pytest.approx(stored[name]["loss"])


def test_other_test_examples_are_measured_and_old_accuracies_left_out(finished, tmp_path):
    """The train part, by which a run knows its data, is the same; what was measured then is not of this test."""
    _, config = finished
    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    arrays(finished[0].parent / "mine.npz", seed=1)
    try:
        found = evaluate_run(config, folder)
        task = task_of(config)
    finally:
        arrays(finished[0].parent / "mine.npz", seed=0)
    assert list(found) == ["selected"]
    assert found["selected"].count == len(task.dataset.test) == 60
    assert found["selected"].top1 != json.loads((folder / "results.json").read_text())["selected"]["top1"]


def test_an_unfinished_run_has_the_weights_of_its_checkpoint(finished, tmp_path):
    """Stopped after 5 of 12 steps: no model is selected yet, and none is finished."""
    _, config = finished
    shutil.copy(finished[0] / "config.yaml", tmp_path)
    trainer = Trainer(config, task_of(config))

    class Stopped(Exception):
        pass

    class FiveSteps(Listener):
        def step_taken(self):
            if trainer.steps_done == 5:
                raise Stopped

    with pytest.raises(Stopped):
        fit(trainer, FiveSteps())
    of_run = identity(trainer.config, trainer.task, trainer.device)
    nothing_logged = {"metrics": 0, "metrics_checksum": 0, "seconds": 0.0}
    save_with_ledger(tmp_path, {**of_run, "trainer": trainer.state_dict(), **nothing_logged})
    found = evaluate_run(trainer.config, tmp_path)
    assert list(found) == ["averaged", "raw"]
    measured = trainer.end_epoch()
    assert found["averaged"].top1 == measured["accuracy"]
    assert found["raw"].top1 == measured["raw_accuracy"]


def test_a_listener_writes_metrics_and_the_place_that_belongs_to_a_checkpoint(tmp_path):
    class Bar:
        def advance(self, n=1, **numbers):
            pass

    saved, clock = [], iter([1.23456, 7.5])
    with MetricsLog(tmp_path / "metrics.jsonl") as metrics:
        listener = RunListener(Bar(), metrics, saved.append, lambda: next(clock))
        listener.step_taken()
        listener.epoch_ended({"step": 3, "accuracy": 0.5})
        listener.checkpoint_due({"steps_done": 3})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 3, "accuracy": 0.5, "seconds": 1.235}]
    length = (tmp_path / "metrics.jsonl").stat().st_size
    assert [{name: value for name, value in one.items() if name != "metrics_checksum"} for one in saved] == [
        {"trainer": {"steps_done": 3}, "metrics": length, "seconds": 7.5}
    ]
