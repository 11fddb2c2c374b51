"""The rows to verify next, after a run or before any: those in doubt, and at first those typical of their class.

A first look is what the default method says of the labels before its first step, by what the inputs look like: with no
network, in seconds. Its folder is that of a run without a model: the review page and `karat apply` work on it.
"""

import logging
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
import yaml
from torch import Tensor

from karat.audit.ledger import Ledger
from karat.audit.record import AuditRecord, LabelledRows, save_record
from karat.audit.run_audit import suggest_rows, write_audit
from karat.audit.suggest import Looks
from karat.data.examples import Examples
from karat.data.task import NoisyTask
from karat.data.trusted import limited_rows
from karat.errors import UserError
from karat.files.atomic import write_text
from karat.files.json_files import write_json
from karat.methods.karat.appearance import learn_appearance
from karat.methods.karat.method import Karat
from karat.methods.karat.verdict import Verdict
from karat.report.run_report import task_report
from karat.settings.config import Config, config_as_dict
from karat.settings.read import read_run_config
from karat.training.build import vectors_at
from karat.training.tasks import featured_task
from karat.training.trainer import Trainer

logger = logging.getLogger("karat")

LOOKED_AT = 5_000  # noisy rows, one class as often as another: a look takes seconds, however many there are


def suggest_next(folder: Path, count: int) -> tuple[Path, pd.DataFrame]:
    """Write suggestions.csv of a run, and its review page with these rows first; return the former."""
    try:
        task = featured_task(read_run_config(folder))
    except (UserError, OSError) as error:
        logger.warning("Rows are chosen without a look at the data, and report.html stays as it was: %s", error)
        return suggest_rows(folder, count)
    return _suggested(folder, count, task)


def suggest_first(config: Config, folder: Path, count: int) -> tuple[Path, pd.DataFrame]:
    """Look at data that were never trained on; write what a run would, but for its model, and the rows to verify."""
    task = featured_task(config)
    rows = _some(task.noisy.labels, len(task.dataset.classes))
    record = _record(task, rows, first_verdict(task, rows, config))
    write_text(folder / "config.yaml", yaml.safe_dump(config_as_dict(config), sort_keys=False))
    save_record(record, folder / "ledger.safetensors")
    write_audit(folder)
    write_json(folder / "results.json", {})
    return _suggested(folder, count, task)


def first_verdict(task: NoisyTask, rows: Tensor, config: Config) -> Verdict:
    """Return what the default method says of these noisy examples before its first step."""
    some = replace(
        task, noisy=task.noisy.subset(rows), noisy_rows=task.noisy_rows[rows], labels=task.labels.subset(rows)
    )
    trainer = Trainer(config, some)
    assert isinstance(trainer.method, Karat)
    trainer.method.look(trainer.generator)
    return trainer.method.verdict


def _record(task: NoisyTask, rows: Tensor, verdict: Verdict) -> AuditRecord:
    places, classes, ledger = task.noisy_rows[rows], task.dataset.classes, Ledger(len(rows), len(task.dataset.classes))
    ledger.fill(torch.arange(len(rows)), verdict.probabilities)
    return AuditRecord(
        classes,
        LabelledRows(task.dataset.names_of(places), places, task.noisy.labels[rows]),
        ledger,
        LabelledRows(task.trusted_names, task.trusted_rows, task.trusted.labels),
        Ledger(len(task.trusted), len(classes)),
        torch.zeros(0, len(classes)),
        torch.zeros(0, dtype=torch.int64),
        transition=verdict.transition,
        posterior=verdict.posterior,
    )


def _suggested(folder: Path, count: int, task: NoisyTask) -> tuple[Path, pd.DataFrame]:
    def look(record: AuditRecord) -> Looks:
        rows = _some(record.noisy.labels, len(record.classes))
        places = torch.searchsorted(task.noisy_rows, record.noisy.index[rows])
        return Looks(rows, _features(task.noisy.subset(places), task))

    found = suggest_rows(folder, count, look)
    task_report(task.seen, folder)
    return found


def _some(labels: Tensor, classes: int) -> Tensor:
    """Return which examples are looked at: all, or equally many of each class."""
    return limited_rows(labels, None, classes, max(LOOKED_AT, classes), seed=0)


def _features(examples: Examples, task: NoisyTask) -> Tensor:
    """Return features that no label had a part in."""
    read, generator = vectors_at(examples.inputs), torch.Generator().manual_seed(0)
    appearance = learn_appearance(read, len(examples), task.dataset.modality.name, generator, task.dataset.flip)
    return appearance.features(read, torch.arange(len(examples)))
