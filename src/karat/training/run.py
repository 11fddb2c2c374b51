"""A run from its config to its folder: trained, resumed, evaluated."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from karat.config import Config, config_as_dict
from karat.data.prepare import NoisyTask, prepare_task
from karat.errors import UserError
from karat.files import locked
from karat.methods.rog import generative_classifier
from karat.training.checkpoints import save_checkpoint, save_weights
from karat.training.evaluation import Accuracy, evaluate
from karat.training.metrics import MetricsLog
from karat.training.progress import Progress
from karat.training.run_folder import check_folder, environment, finish_folder, read_state, start_folder
from karat.training.semantic_noise import semantic_labeller
from karat.training.trainer import Trainer

logger = logging.getLogger("karat")


@dataclass(frozen=True)
class RunResult:
    """Test accuracy of the model at the lowest learning rate, and of the averaged and raw weights at the end.

    `validated` is that of the averaged weights which were best on the noisy validation examples, where there are some.
    `noise_rate` is the realised share of wrong labels among the noisy ones; None where nobody knows it.
    """

    selected: Accuracy
    averaged: Accuracy
    raw: Accuracy
    noise_rate: float | None
    seconds: float
    validated: Accuracy | None = None


def task_of(config: Config) -> NoisyTask:
    """Prepare the examples that a config names."""
    labeller = semantic_labeller(config.noise, config.seed, config.training.device)
    return prepare_task(config.data, config.noise, config.seed, labeller)


def train_run(config: Config, folder: Path, resume: bool = False, console: Console | None = None) -> RunResult:
    """Train as the config says and leave everything in the folder; `resume` goes on from its checkpoint.

    The folder must be new or empty, or hold a run of the same config and data if resumed.
    """
    check_folder(folder, resume)
    with locked(folder):
        return _train(config, folder, resume, console)


def _train(config: Config, folder: Path, resume: bool, console: Console | None) -> RunResult:
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    trainer = Trainer(config, task_of(config))
    if not trainer.task.dataset.curated and trainer.task.dataset.trusted is None:
        logger.warning(
            "%d trusted examples of each class were drawn from the train labels, so these must be right: better mark "
            "the ones that you verified, in a boolean array `trusted` of %s.",
            config.data.trusted_per_class,
            config.data.name,
        )
    state = read_state(folder, config, trainer) if resume else None
    start_folder(folder, config, trainer)

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
            save_checkpoint(folder / "checkpoint.pt", {**fixed, "trainer": trainer.state_dict(), **moving})

        description = f"{trainer.task.dataset.name} {config.method}"
        every = config.training.checkpoint_every or trainer.steps_per_epoch
        with Progress(description, trainer.total_steps, trainer.steps_done, console) as progress:
            while not trainer.finished:
                trainer.train_step()
                shown: dict[str, Any] = {}
                if trainer.evaluation_due:
                    figures = trainer.figures()
                    metrics.append({**figures, "seconds": round(time.monotonic() - began, 3)})
                    shown = {"accuracy": figures["accuracy"]}
                    _warn_of_collapse(figures)
                if trainer.steps_done % every == 0 or trainer.finished:
                    checkpoint()
                progress.advance(**shown)
        models = trainer.models()
        result = RunResult(
            **_accuracies(models, trainer.task),
            noise_rate=trainer.task.labels.rate,
            seconds=time.monotonic() - began,
        )
        finish_folder(folder, trainer, models["selected"], asdict(result))
        return result


def evaluate_run(config: Config, folder: Path) -> dict[str, Accuracy]:
    """Measure the weights in a run's checkpoint on the test examples; the selected ones once they are chosen."""
    trainer = _stored_trainer(config, folder)
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
    return {name: evaluate(model, test.inputs, test.labels) for name, model in models.items()}


def _warn_of_collapse(figures: dict[str, float]) -> None:
    if figures.get("collapsed_share", 0.0) > 0.5:
        logger.warning(
            "No noisy example helped the trusted ones in %.0f%% of the steps up to step %d, so all weights were 0: "
            "check the trusted labels, add more of them, or lower optimizer.rate.",
            100 * figures["collapsed_share"],
            figures["step"],
        )
