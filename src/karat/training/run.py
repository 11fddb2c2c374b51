"""A run from its config to its folder: trained and resumed."""

import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from torch import nn

from karat.algorithm.ranks import Ranks
from karat.audit.warnings_list import NOTHING_VERIFIED
from karat.data.sources.problems import BadImages
from karat.data.task import NoisyTask
from karat.errors import Stopped, UserError
from karat.files.json_files import read_json
from karat.files.locks import locked
from karat.files.memory_need import give_back_memory, keeping_freed_memory
from karat.files.metrics_log import MetricsLog
from karat.files.required import fitting
from karat.files.safe_csv import write_safe_csv
from karat.inference.evaluation import Accuracy, evaluate
from karat.methods.method import Finished
from karat.models.pretrained import PretrainedClassifier
from karat.progress_bar import ProgressBar
from karat.report.run_report import report_after_training
from karat.settings.config import Config, flat
from karat.settings.read import read_config, read_run_config
from karat.training.audit_record import audit_record
from karat.training.fine_tune import fine_tuned
from karat.training.fit import BarListener, fit
from karat.training.frozen import whole_model
from karat.training.launch import Work, launch
from karat.training.measured import WEIGHTS, accuracies
from karat.training.memory import memory_warning
from karat.training.plan import is_fitted, with_chosen
from karat.training.processes import joined, place, wanted, was_restarted
from karat.training.run_checkpoint import (
    CHECKPOINT,
    PREVIOUS,
    drop_previous,
    identity,
    read_state,
    save_with_ledger,
    settle,
    warn_of_changes,
    with_ledger,
)
from karat.training.run_folder import (
    check_folder,
    chosen_settings,
    finish_folder,
    start_folder,
)
from karat.training.run_warnings import of_passes, warn_of_collapse, warn_of_drawn_trust
from karat.training.signals import asked_to_stop
from karat.training.tasks import featured_task
from karat.training.together import check_same_data, set_up_torch, signal_of_all, take_steps_along
from karat.training.trainer import RATE_AFTER_RECOVERY, RECOVERIES, Diverged, Trainer
from karat.training.unread import unread_settings

logger = logging.getLogger("karat")


@dataclass(frozen=True)
class RunResult:
    """Test accuracy of the model at the lowest learning rate, and of the averaged and raw weights at the end.

    `validated` is that of the averaged weights which were best on the noisy validation examples, where there are some.
    All four are None where there are no test examples. `trusted` is the accuracy of the first model on the trusted
    examples, which training has seen; None where there are none.
    `noise_rate` is the realised share of wrong labels among the noisy ones; None where nobody knows it.
    """

    selected: Accuracy | None
    averaged: Accuracy | None
    raw: Accuracy | None
    noise_rate: float | None
    seconds: float
    validated: Accuracy | None = None
    trusted: Accuracy | None = None


class RunListener(BarListener):
    """Write what a run must not lose: a line of metrics an epoch, and its checkpoints."""

    def __init__(
        self,
        bar: ProgressBar,
        metrics: MetricsLog,
        save: Callable[[dict[str, Any]], None],
        seconds: Callable[[], float],
    ) -> None:
        super().__init__(bar)
        self._metrics, self._save, self._seconds = metrics, save, seconds

    def epoch_ended(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics and show the accuracy."""
        self._metrics.append({**metrics, "seconds": round(self._seconds(), 3)})
        super().epoch_ended(metrics)
        warn_of_collapse(metrics)

    def checkpoint_due(self, state: dict[str, Any]) -> None:
        """Write the checkpoint, with the place in the metrics that belongs to it."""
        place = {"metrics": self._metrics.position(), "metrics_checksum": self._metrics.checksum()}
        self._save({"trainer": state, **place, "seconds": self._seconds()})


def train(
    data: str | Path | Config, run: str | Path, /, *, resume: bool = False, report: bool = True, **settings: Any
) -> RunResult:
    """Train on your own data or a dataset by its name, as `karat train DATA --run RUN` does, into the folder `run`.

    The settings are those of `karat train --help`, nested or, from a dict, with dotted names; or the first argument is
    a Config that says everything. `resume` goes on from the checkpoint in the folder, which is otherwise new or empty.
    `report`: write report.html. Progress is shown on the standard error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = train("wine", f"{folder}/run", noise={"kind": "uniform", "rate": 0.4}, training={"epochs": 10})
    >>> bool(result.selected.top1 > 0.8)
    True
    """
    if isinstance(data, Config):
        if settings:
            given = ", ".join(settings)
            raise UserError(f"There are a Config and settings ({given}): put these into the Config with read_config.")
        return train_run(data, Path(run), resume, report=report)
    named = flat(settings)
    if "data.name" in named:
        raise UserError(f"The data are {data} and, by data.name, {named['data.name']}: name them once.")
    return train_run(read_config({**named, "data.name": str(data)}), Path(run), resume, report=report)


def train_run(
    config: Config,
    folder: Path,
    resume: bool = False,
    console: Console | None = None,
    report: bool = True,
    name_folder: bool = False,
) -> RunResult:
    """Train as the config says and leave everything in the folder; `resume` goes on from its checkpoint.

    The folder must be new or empty, or hold a run of the same config and data if resumed. `report`: write report.html.
    `name_folder`: say where it is as soon as there is something in it.

    Where the config asks for several processes, they are started here; a process that torchrun or SLURM started joins
    the others. The first one writes to the folder, and all return what it found.
    """
    work = Work(config, folder, resume, report, name_folder)
    if wanted(config.training) > 1 and place(config.training) is None:
        check_folder(folder, resume)
        return launched_run(work)
    with joined(config.training) as ranks:
        return _train_here(work, console) if ranks is None else _train_together(work, console, ranks)


def launched_run(work: Work) -> RunResult:
    """Train in processes of their own on this machine; return what they found."""
    launch(work)
    found = read_json(work.folder / "results.json")
    measured = {name: found[name] and Accuracy(**found[name]) for name in (*WEIGHTS, "trusted")}
    return RunResult(**measured, noise_rate=found["noise_rate"], seconds=found["seconds"])


def _train_together(work: Work, console: Console | None, ranks: Ranks) -> RunResult:
    """Train with other processes; one that torchrun has restarted goes on from the checkpoint unasked."""
    found: RunResult | None = None
    if ranks.is_first:
        goes_on = was_restarted() and any((work.folder / name).exists() for name in (CHECKPOINT, PREVIOUS))
        found = _train_here(replace(work, resume=work.resume or goes_on), console, ranks)
    else:
        take_steps_along(work.config, ranks)
    result = ranks.all_values(found)[0]
    assert result is not None
    return result


def _task_in(folder: Path, config: Config) -> NoisyTask:
    """Prepare the examples; list in the folder the images that cannot be read."""
    try:
        return featured_task(config)
    except BadImages as error:
        listed = folder / "bad_images.csv"
        write_safe_csv(pd.DataFrame(error.images, columns=["name", "reason"]), listed)
        raise UserError(f"{error}\nAll of them are in {listed}.") from error


def _train_here(work: Work, console: Console | None, ranks: Ranks | None = None) -> RunResult:
    check_folder(work.folder, work.resume)
    with locked(work.folder):
        result = _train(work, console, ranks)
    give_back_memory()
    return result


def _train(work: Work, console: Console | None, ranks: Ranks | None) -> RunResult:
    config, folder, resume = work.config, work.folder, work.resume
    set_up_torch(config)
    settle(folder)
    if resume:  # the number of epochs that was chosen may be another one on this machine
        config = with_chosen(config, read_run_config(folder), chosen_settings(folder))
    if ranks is not None:
        ranks.from_first(lambda: config)
    task = _task_in(folder, config)
    if ranks is not None:
        ranks.from_first(lambda: None)  # now the others may read: what is wrong with the data is said once
    trainer = Trainer(config, task, scratch=folder, ranks=ranks)
    if ranks is not None:
        check_same_data(trainer, ranks)
    fitted = is_fitted(config.method, trainer.plan.model) or trainer.task.dataset.featured
    unread = unread_settings(config, trainer.task.dataset, fitted)
    warn_of_drawn_trust(trainer)
    state = read_state(folder, trainer.config, trainer.task) if resume else None
    if state is not None:
        warn_of_changes(state, trainer.device)
        state = with_ledger(folder, state)
    start_folder(folder, trainer, resume)
    console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
    if work.name_folder:
        console.print(f"karat: run folder {folder}", markup=False, highlight=False, soft_wrap=True)
    assumed = () if len(trainer.task.trusted) else (NOTHING_VERIFIED,)
    settings = (*unread, *of_passes(trainer))
    said = () if resume else (*settings, *assumed, *trainer.task.dataset.notes, *trainer.plan.reasons)
    for sentence in (*said, *memory_warning(trainer)):
        console.print(f"karat: {sentence}", markup=False, highlight=False, soft_wrap=True)

    seconds = _fit_in(folder, trainer, state, console)
    drop_previous(folder)
    finished = trainer.finished_models()
    selected, trusted = finished["selected"], trainer.task.trusted
    measured = accuracies({name: model for name, (model, _) in finished.items()}, trainer.task)
    result = RunResult(
        **{name: measured.get(name) for name in WEIGHTS},
        noise_rate=trainer.task.labels.rate,
        seconds=seconds(),
        trusted=evaluate(selected.model, trusted.inputs, trusted.labels) if len(trusted) else None,
    )
    record = audit_record(trainer, selected)
    model = whole_model(trainer.task, selected.model)
    if trainer.task.origin is not None and config.training.fine_tune:
        model, result = _fine_tuned(trainer, selected, result, seconds)
    finish_folder(folder, model, record, asdict(result), trainer.device, trainer.config.audit)
    if work.report:
        report_after_training(trainer.task.seen, folder)
    return result


def _fine_tuned(
    trainer: Trainer, fitted: Finished, result: RunResult, seconds: Callable[[], float]
) -> tuple[nn.Module, RunResult]:
    """Train the pretrained network on the verdict; return it, and what is known of it."""
    task, judgement = trainer.task, fitted.judgement
    assert judgement is not None

    def change(network: PretrainedClassifier) -> PretrainedClassifier:
        return fine_tuned(network, task, judgement.posterior, trainer.config, trainer.device)

    model = whole_model(task, fitted.model, change)
    trusted, measured = task.seen.trusted, accuracies({"selected": model}, task.seen)
    return model, replace(
        result,
        selected=measured.get("selected"),
        trusted=evaluate(model, trusted.inputs, trusted.labels) if len(trusted) else None,
        seconds=seconds(),
    )


def _learns_images_here(trainer: Trainer) -> bool:
    return trainer.device.type == "cpu" and len(trainer.task.noisy.inputs.shape) > 2


def _fit_in(folder: Path, trainer: Trainer, state: dict[str, Any] | None, console: Console) -> Callable[[], float]:
    """Take the steps that are left, writing to the folder; return the clock of the run."""
    began = time.monotonic() - (0.0 if state is None else state["seconds"])
    fixed = identity(trainer.config, trainer.task, trainer.device)

    def seconds() -> float:
        return time.monotonic() - began

    def say(sentence: str) -> None:
        console.print(f"karat: {sentence}", markup=False, highlight=False)

    def save(moving: dict[str, Any]) -> None:
        save_with_ledger(folder, {**fixed, **moving})

    if state is not None:
        with fitting(folder / CHECKPOINT, "start a new run"):
            trainer.load_state_dict(state["trainer"])
    ranks = trainer.ranks
    title = f"{trainer.task.dataset.name} {trainer.config.method}"
    while True:
        if ranks is not None:
            ranks.from_first(trainer.shared_state)
        try:
            with (
                keeping_freed_memory() if _learns_images_here(trainer) else nullcontext(),
                asked_to_stop(say) as asked,
                MetricsLog(folder / "metrics.jsonl") as metrics,
                ProgressBar(title, trainer.total_steps, trainer.steps_done, console) as bar,
            ):
                _continue_metrics(metrics, state)
                done = fit(
                    trainer, RunListener(bar, metrics, save, seconds), stop=lambda: signal_of_all(asked, ranks) > 0
                )
        except Diverged as error:
            state = _go_back(folder, trainer, error)
            continue
        if not done:
            again = f"`karat train --resume --run {folder}` continues"
            raise Stopped(
                signal_of_all(asked, ranks),
                f"stopped after step {trainer.steps_done} of {trainer.total_steps}; {again}.",
            )
        return seconds


def _continue_metrics(metrics: MetricsLog, state: dict[str, Any] | None) -> None:
    """Drop the lines that were written after the checkpoint; say where those before it are not as they were."""
    metrics.truncate(0 if state is None else state["metrics"])
    if state is not None and metrics.checksum() != state["metrics_checksum"]:
        logger.warning(
            "metrics.jsonl is damaged: its lines up to step %d are not as written, and the curves of the "
            "report may be wrong there; the training is not.",
            state["trainer"]["steps_done"],
        )


def _go_back(folder: Path, trainer: Trainer, error: Diverged) -> dict[str, Any] | None:
    """Put the trainer back to its last checkpoint, or to the start, with a lower rate; return the checkpoint."""
    if trainer.recoveries == RECOVERIES:
        raise UserError(
            f"{error} Lower rates did not help, {RECOVERIES} times: look for huge or missing values in the data, too."
        ) from error
    recoveries = trainer.recoveries + 1
    state = read_state(folder, trainer.config, trainer.task)
    if state is None:
        trainer.load_state_dict(Trainer(trainer.config, trainer.task, scratch=folder).state_dict())
    else:
        state = with_ledger(folder, state)
        trainer.load_state_dict(state["trainer"])
    trainer.recoveries = recoveries
    logger.warning(
        "%s The run goes on from step %d with %.2g of the rate (%d of %d times).",
        str(error).split(":")[0] + ".",
        trainer.steps_done,
        RATE_AFTER_RECOVERY**recoveries,
        recoveries,
        RECOVERIES,
    )
    return state
