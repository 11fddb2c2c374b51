"""A run from its config to its folder: trained, resumed, evaluated."""

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from karat.data.task import NoisyTask, prepare_task
from karat.errors import UserError
from karat.files.locks import locked
from karat.files.metrics_log import MetricsLog
from karat.inference.evaluation import Accuracy, evaluate
from karat.methods.rog import generative_classifier
from karat.progress_bar import ProgressBar
from karat.report.run_report import report_after_training
from karat.settings.config import Config, config_as_dict
from karat.settings.read import read_run_config
from karat.training.checkpoints import save_weights, save_with_ledger
from karat.training.corrections import read_corrections
from karat.training.plan import with_chosen
from karat.training.run_folder import (
    check_folder,
    chosen_settings,
    environment,
    finish_folder,
    read_state,
    start_folder,
)
from karat.training.semantic_noise import semantic_labeller
from karat.training.trainer import Trainer
from karat.training.unread import unread_settings

logger = logging.getLogger("karat")

STEPS_BETWEEN_CHECKPOINTS = 50  # at least: writing one takes as long as several steps of a small network
_SHOWN = ("accuracy", "validation_accuracy", "given_label_accuracy")  # beside the progress: the first that there is


@dataclass(frozen=True)
class RunResult:
    """Test accuracy of the model at the lowest learning rate, and of the averaged and raw weights at the end.

    `validated` is that of the averaged weights which were best on the noisy validation examples, where there are some.
    All four are None where there are no test examples. `trusted` is the accuracy of the first model on the trusted
    examples, which training has seen.
    `noise_rate` is the realised share of wrong labels among the noisy ones; None where nobody knows it.
    """

    selected: Accuracy | None
    averaged: Accuracy | None
    raw: Accuracy | None
    noise_rate: float | None
    seconds: float
    validated: Accuracy | None = None
    trusted: Accuracy | None = None


def task_of(config: Config) -> NoisyTask:
    """Prepare the examples that a config names."""
    labeller = semantic_labeller(config.noise, config.seed, config.training.device)
    file = config.data.labels_file
    corrections = None if file is None else read_corrections(file)
    return prepare_task(config.data, config.noise, config.seed, labeller, corrections)


def train_run(
    config: Config, folder: Path, resume: bool = False, console: Console | None = None, report: bool = True
) -> RunResult:
    """Train as the config says and leave everything in the folder; `resume` goes on from its checkpoint.

    The folder must be new or empty, or hold a run of the same config and data if resumed. `report`: write report.html.
    """
    check_folder(folder, resume)
    with locked(folder):
        return _train(config, folder, resume, console, report)


def _train(config: Config, folder: Path, resume: bool, console: Console | None, report: bool) -> RunResult:
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    if resume:  # the number of epochs that was chosen may be another one on this machine
        config = with_chosen(config, read_run_config(folder), chosen_settings(folder))
    trainer = Trainer(config, task_of(config), folder=folder)
    unread = unread_settings(config, trainer.task.dataset)
    config = trainer.config
    if not trainer.task.dataset.curated and trainer.task.dataset.trusted is None:
        logger.warning(
            "%d trusted examples of each class were drawn from the train labels, so these must be right: better mark "
            "the ones that you verified, in a boolean array `trusted` of %s.",
            config.data.trusted_per_class,
            config.data.name,
        )
    state = read_state(folder, config, trainer) if resume else None
    start_folder(folder, trainer, resume)
    console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
    for sentence in () if resume else (*unread, *trainer.task.dataset.notes, *trainer.plan.reasons):
        console.print(f"karat: {sentence}", markup=False, highlight=False, soft_wrap=True)

    with MetricsLog(folder / "metrics.jsonl") as metrics:
        began = time.monotonic()
        if state is None:
            metrics.truncate(0)
        else:
            trainer.load_state_dict(state["trainer"])
            metrics.truncate(state["metrics"])
            began -= state["seconds"]
        fixed = {
            "config": config_as_dict(config),
            "data": trainer.task.fingerprint(),
            "environment": environment(trainer),
        }

        def checkpoint() -> None:
            moving = {"metrics": metrics.position(), "seconds": time.monotonic() - began}
            save_with_ledger(folder, {**fixed, "trainer": trainer.state_dict(), **moving})

        description = f"{trainer.task.dataset.name} {config.method}"
        every = config.training.checkpoint_every or max(trainer.steps_per_epoch, STEPS_BETWEEN_CHECKPOINTS)
        with ProgressBar(description, trainer.total_steps, trainer.steps_done, console) as progress:
            trainer.tell = progress.tell
            while not trainer.finished:
                trainer.train_step()
                shown: dict[str, float] = {}
                if trainer.evaluation_due:
                    figures = trainer.figures()
                    metrics.append({**figures, "seconds": round(time.monotonic() - began, 3)})
                    shown = _first_shown(figures)
                    _warn_of_collapse(figures)
                if trainer.steps_done % every == 0 or trainer.finished:
                    checkpoint()
                progress.advance(**shown)
        models = trainer.models()
        trusted = trainer.task.trusted
        measured: dict[str, Accuracy | None] = {**dict.fromkeys(models), **_accuracies(models, trainer.task)}
        result = RunResult(
            **measured,  # the models' names are the fields'
            noise_rate=trainer.task.labels.rate,
            seconds=time.monotonic() - began,
            trusted=evaluate(models["selected"], trusted.inputs, trusted.labels),
        )
        finish_folder(folder, trainer, models["selected"], asdict(result))
        if report:
            report_after_training(trainer.task, folder)
        return result


def evaluate_run(config: Config, folder: Path) -> dict[str, Accuracy]:
    """Measure the weights in a run's checkpoint on the test examples; the selected ones once they are chosen."""
    trainer = _stored_trainer(config, folder)
    if not len(trainer.task.dataset.test):
        raise UserError(
            f"The data of {folder} have no test examples: write karat evaluate {folder} DATA with labelled rows that "
            "were not trained on."
        )
    return _accuracies(trainer.models(), trainer.task)


def rog_of_run(config: Config, folder: Path) -> dict[str, Accuracy]:
    """Put the generative classifier of RoG on a run's model; write rog.safetensors and measure both."""
    trainer = _stored_trainer(config, folder)
    models = trainer.models()
    model = models.get("selected", models["averaged"])
    noisy = trainer.task.noisy
    robust = generative_classifier(
        model, lambda rows: noisy.batch(rows).inputs.to(trainer.device), noisy.labels, trainer.classes
    )
    save_weights(folder / "rog.safetensors", robust)
    return _accuracies({"model": model, "rog": robust}, trainer.task)


def _stored_trainer(config: Config, folder: Path) -> Trainer:
    trainer = Trainer(config, task_of(config))
    state = read_state(folder, config, trainer)
    if state is None:
        raise UserError(f"{folder} has no checkpoint yet: let the run take its first steps.")
    trainer.load_state_dict(state["trainer"])
    return trainer


def _accuracies(models: Mapping[str, nn.Module], task: NoisyTask) -> dict[str, Accuracy]:
    test = task.dataset.test
    if not len(test):
        return {}
    measured = {model: evaluate(model, test.inputs, test.labels) for model in dict.fromkeys(models.values())}
    return {name: measured[model] for name, model in models.items()}


def _first_shown(figures: Mapping[str, float]) -> dict[str, float]:
    name = next((name for name in _SHOWN if name in figures), None)
    return {} if name is None else {name: figures[name]}


def _warn_of_collapse(figures: dict[str, float]) -> None:
    if figures.get("collapsed_share", 0.0) > 0.5:
        logger.warning(
            "No noisy example helped the trusted ones in %.0f%% of the steps up to step %d, so all weights were 0: "
            "check the trusted labels, add more of them, or lower optimizer.rate.",
            100 * figures["collapsed_share"],
            figures["step"],
        )
