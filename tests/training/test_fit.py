"""The loop: what it tells its listener, and in which order; a quiet one changes nothing."""

from dataclasses import replace

import pytest
from comparing import assert_same

from karat.errors import UserError
from karat.settings.config import Config, NoiseSettings, OptimizerSettings, TrainingSettings
from karat.training.fit import BarListener, Listener, fit
from karat.training.tasks import task_of
from karat.training.trainer import Trainer


def trainer(method="supervised", **training):
    """Return a run on 109 noisy wines with batches of 40: three steps an epoch."""
    config = Config(
        method,
        data=replace(Config().data, name="wine", trusted_per_class=5),
        noise=NoiseSettings("uniform", 0.6),
        training=TrainingSettings(**{"steps": 7, "batch_size": 40, "device": "cpu", **training}),
    )
    return Trainer(config, task_of(config))


class Told(Listener):
    def __init__(self):
        self.events = []

    def step_taken(self):
        self.events.append("step")

    def epoch_ended(self, metrics):
        self.events.append(("epoch", metrics["step"]))

    def checkpoint_due(self, state):
        self.events.append(("checkpoint", state["steps_done"]))

    def working(self, work, share):
        self.events.append((work, share))


def test_steps_epochs_and_checkpoints_are_told_in_their_order():
    """Epochs end after steps 3, 6 and, cut short, 7; checkpoints are due every 4 steps and at the end."""
    told = Told()
    fit(trainer(checkpoint_every=4), told)
    assert told.events == [
        *("step", "step", "step", ("epoch", 3)),
        *("step", ("checkpoint", 4), "step", "step", ("epoch", 6)),
        *("step", ("epoch", 7), ("checkpoint", 7)),
    ]


def test_without_a_setting_checkpoints_are_fifty_steps_apart_at_least():
    told = Told()
    fit(trainer(steps=101), told, evaluate=False)
    assert [event for event in told.events if event != "step"] == [("checkpoint", step) for step in (50, 100, 101)]


def test_work_between_steps_is_told():
    told = Told()
    fit(trainer("karat"), told)
    assert ("judging their labels", 1.0) in told.events[: told.events.index("step")]


def test_who_listens_does_not_change_the_run():
    quiet, heard = trainer(), trainer()
    fit(quiet)
    fit(heard, Told())
    assert_same(quiet.state_dict(), heard.state_dict())


def test_a_finished_run_takes_no_step():
    told, run = Told(), trainer()
    fit(run)
    fit(run, told)
    assert told.events == []


def test_a_run_that_diverges_ends_before_its_checkpoint():
    told, run = Told(), trainer(checkpoint_every=3)
    run = Trainer(replace(run.config, optimizer=OptimizerSettings(rate=1e30)), run.task)
    with pytest.raises(UserError, match="Training diverged at step"):
        fit(run, told)
    assert told.events == ["step"]


def test_a_bar_shows_the_accuracy_that_says_most():
    class Bar:
        def __init__(self):
            self.calls = []

        def advance(self, n=1, /, **numbers):
            self.calls.append((n, numbers))

    bar = Bar()
    listener = BarListener(bar)
    listener.step_taken()
    listener.epoch_ended({"step": 3, "given_label_accuracy": 0.4, "accuracy": 0.75})
    listener.epoch_ended({"step": 6, "given_label_accuracy": 0.5})
    listener.epoch_ended({"step": 9})
    assert bar.calls == [(1, {}), (0, {"accuracy": 0.75}), (0, {"given_label_accuracy": 0.5})]


def test_a_run_that_is_asked_to_stop_ends_with_a_checkpoint():
    told, run = Told(), trainer(checkpoint_every=100)
    assert not fit(run, told, stop=lambda: run.steps_done == 2)
    assert told.events[-2:] == ["step", ("checkpoint", 2)]
    assert fit(run, told)
