"""A run and its folder: the resolved config, the noise, metrics, checkpoint, model and label issues.

config.yaml         everything that was asked for, resolved
environment.json    versions, device and threads
noisy_labels.csv    the given labels, and the true ones where they are known
metrics.jsonl       one line an evaluation
checkpoint.pt       everything that the next step depends on
model.safetensors   the model taken at the lowest learning rate
label_issues.csv    the noisy examples, the most suspicious first
curves.png, .svg    test accuracy over the steps
coefficients.png, .svg   weights and label trust of right and wrong labels, where they are known
results.json        test accuracy of the selected, averaged and raw weights, time
"""

import itertools
import json
import logging
import platform
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console

from karat.audit.label_issues import label_issues
from karat.audit.plots import accuracy_curves, coefficient_curves, save_figure
from karat.config import Config, config_as_dict, flat
from karat.data.label_files import save_labels
from karat.data.prepare import NoisyTask, prepare_task
from karat.errors import UserError
from karat.files import replacing, write_text
from karat.training.checkpoints import load_checkpoint, save_checkpoint, save_weights
from karat.training.evaluation import Accuracy, evaluate
from karat.training.metrics import MetricsLog, read_metrics
from karat.training.progress import Progress
from karat.training.trainer import Trainer

logger = logging.getLogger("karat")


@dataclass(frozen=True)
class RunResult:
    """Test accuracy of the model at the lowest learning rate, and of the averaged and raw weights at the end."""

    selected: Accuracy
    averaged: Accuracy
    raw: Accuracy
    seconds: float


def task_of(config: Config) -> NoisyTask:
    """Prepare the examples that a config names."""
    data, noise = config.data, config.noise
    return prepare_task(
        data.name,
        data.path,
        data.limit,
        data.trusted_per_class,
        noise.kind,
        noise.rate,
        noise.class_map,
        noise.matrix_file,
        noise.labels_file,
        config.seed,
    )


def train_run(config: Config, folder: Path, resume: bool = False, console: Console | None = None) -> RunResult:
    """Train as the config says and leave everything in the folder; `resume` goes on from its checkpoint.

    The folder must be new or empty, or hold an unfinished run of the same config if resumed.
    """
    check_folder(folder, resume)
    if config.training.threads is not None:
        torch.set_num_threads(config.training.threads)
    task = task_of(config)
    trainer = Trainer(config, task)
    state = _resumed_state(config, folder) if resume else None
    _start_folder(config, folder, task, trainer)

    with MetricsLog(folder / "metrics.jsonl") as metrics:
        seconds_before = 0.0
        if state is not None:
            trainer.load_state_dict(state["trainer"])
            seconds_before = state["seconds"]
        metrics.truncate(state["metrics"] if state is not None else 0)
        began = time.monotonic() - seconds_before

        def checkpoint() -> None:
            save_checkpoint(
                folder / "checkpoint.pt",
                {
                    "config": config_as_dict(config),
                    "trainer": trainer.state_dict(),
                    "metrics": metrics.position(),
                    "seconds": time.monotonic() - began,
                },
            )

        description = f"{task.dataset.name} {config.method}"
        with Progress(description, trainer.total_steps, trainer.steps_done, console) as progress:
            every = config.training.checkpoint_every or trainer.steps_per_epoch
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
        return _finish_folder(folder, trainer, time.monotonic() - began)


def _warn_of_collapse(figures: dict[str, float]) -> None:
    if figures.get("collapsed_share", 0.0) > 0.5:
        logger.warning(
            "No noisy example helped the trusted ones in %.0f%% of the steps up to step %d, so all weights were 0: "
            "check the trusted labels, add more of them, or lower optimizer.rate.",
            100 * figures["collapsed_share"],
            figures["step"],
        )


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that a run would overwrite, or that holds nothing to resume."""
    started = (folder / "config.yaml").exists()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose another run folder with --run.")
    if resume and not started:
        raise UserError(f"There is no run to resume in {folder}: check --run, or leave --resume out.")
    if not resume and started:
        raise UserError(
            f"{folder} holds a run already: continue it with --resume, or choose another folder with --run."
        )
    if not resume and folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: choose another run folder with --run.")


def new_folder(parent: Path, name: str) -> Path:
    """Return the first of name, name-2, name-3, ... that does not exist yet."""
    candidates = itertools.chain([parent / name], (parent / f"{name}-{n}" for n in itertools.count(2)))
    return next(folder for folder in candidates if not folder.exists())


def check_same_config(stored: dict[str, Any], asked: dict[str, Any], where: Path) -> None:
    """Refuse to go on with another config than the stored one; name what differs."""
    before, now = flat(stored), flat(asked)
    different = [
        f"{key} was {before.get(key)} and is now {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]
    if different:
        raise UserError(
            f"{where} belongs to another config ({'; '.join(different)}): "
            "resume without these options, or start a new run with another --run."
        )


def evaluate_run(config: Config, folder: Path) -> dict[str, Accuracy]:
    """Measure the selected, averaged and raw weights in a run's checkpoint on the test examples."""
    trainer = Trainer(config, task_of(config))
    state = _resumed_state(config, folder)
    if state is None:
        raise UserError(f"{folder} has no checkpoint yet: let the run take its first steps.")
    trainer.load_state_dict(state["trainer"])
    return _accuracies(trainer)


def _resumed_state(config: Config, folder: Path) -> dict[str, Any] | None:
    path = folder / "checkpoint.pt"
    if not path.exists():  # killed before the first checkpoint
        return None
    state = load_checkpoint(path)
    check_same_config(state["config"], config_as_dict(config), path)
    return state


def _start_folder(config: Config, folder: Path, task: NoisyTask, trainer: Trainer) -> None:
    write_text(folder / "config.yaml", yaml.safe_dump(config_as_dict(config), sort_keys=False))
    environment = {
        "python": platform.python_version(),
        **{name: version(name) for name in ("karat", "torch", "kornia", "lightning-fabric", "numpy")},
        "device": str(trainer.device),
        "threads": torch.get_num_threads(),
    }
    write_text(folder / "environment.json", json.dumps(environment, indent=2) + "\n")
    save_labels(task.labels, folder / "noisy_labels.csv")


def _accuracies(trainer: Trainer) -> dict[str, Accuracy]:
    test = trainer.task.dataset.test
    models = {
        "selected": trainer.selected.module,
        "averaged": trainer.average.module,
        "raw": trainer.model,
    }
    return {name: evaluate(model, test.inputs, test.labels) for name, model in models.items()}


def _finish_folder(folder: Path, trainer: Trainer, seconds: float) -> RunResult:
    task = trainer.task
    result = RunResult(**_accuracies(trainer), seconds=seconds)
    save_weights(folder / "model.safetensors", trainer.selected.module)
    issues = label_issues(trainer.ledger, task.noisy.labels, task.noisy_indices, task.dataset.classes)
    with replacing(folder / "label_issues.csv") as temporary:
        issues.to_csv(temporary, index=False)
    records = read_metrics(folder / "metrics.jsonl")
    save_figure(accuracy_curves({trainer.config.method: records}), folder / "curves")
    if any("clean_weight_share" in record for record in records):
        save_figure(coefficient_curves(records), folder / "coefficients")
    write_text(folder / "results.json", json.dumps(asdict(result), indent=2) + "\n")
    return result
