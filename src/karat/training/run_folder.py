"""The folder of a run: what is in it, and when it may be written to.

config.yaml         everything that was asked for, resolved
plan.json           what nobody asked for and Karat chose: network, length, batch size, and why
schema.json         what new data must look like: how they become inputs, the classes, the network
text.safetensors    of texts: the terms, how rare they are, and the directions that make vectors of them
environment.json    versions, device and threads
noisy_labels.csv    the given labels, and the true ones where they are known
bad_images.csv      images that cannot be read, where there are some, and why
noise.json          how many labels are wrong and the matrix [true, given], asked for and realised, where known
metrics.jsonl       one line an evaluation
checkpoint.pt       everything that the next step depends on, but for
ledger-STEP.safetensors   the ledger at that step
checkpoint.previous.pt    the checkpoint before it, while the run goes on: it serves where the last one is damaged
model.safetensors   the model taken at the lowest learning rate
ledger.safetensors  what training learned about every example: all that the audit needs
label_issues.csv    the noisy examples, the most suspicious first
cleaned_labels.csv  all train examples with the label to keep: kept, changed, left for review, trusted
noise_estimate.json how many labels are wrong, with an interval, and the matrix [true, given]
checksums.json      of the files that are written once
reliability.json    how well label_quality fits the truth, where that is known
sample.csv, sample.json, sample.html   rows drawn by `karat sample`, to be decided; sample_estimate.json what they say
results.json        test accuracy of selected, averaged and raw weights (null without test examples), noise rate, time
report.html, report_files/   all of it to look at, and the review of the labels
"""

import itertools
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from torch import nn

from karat.audit.record import AuditRecord, save_record
from karat.audit.run_audit import write_audit
from karat.audit.settings import AuditSettings
from karat.data.noise.label_files import save_labels
from karat.data.noise.summary import noise_summary
from karat.errors import UserError
from karat.files.atomic import write_text
from karat.files.checksums import CHECKSUMS, write_checksums
from karat.files.json_files import read_json, write_json
from karat.files.safe_csv import write_safe_csv
from karat.files.weights import save_weights
from karat.inference.model import ModelDescription
from karat.methods.shared.ensemble import Ensemble
from karat.models import PRETRAINED
from karat.models.pretrained import Pretrained
from karat.settings.config import Config, config_as_dict, flat
from karat.training.build import views_of
from karat.training.environment import environment, peak_memory
from karat.training.run_checkpoint import CHECKPOINT, PREVIOUS
from karat.training.trainer import Trainer

# What a run writes before its first checkpoint; with nothing else in it, a folder has nothing to lose.
_FIRST_FILES = {
    *("config.yaml", "plan.json", "schema.json", "environment.json", "noisy_labels.csv", "noise.json", "metrics.jsonl"),
    *("bad_images.csv", "text.safetensors", ".lock"),
}

# What is written once; the audit's tables and the report are made again from it.
_CHECKED = (
    *("config.yaml", "plan.json", "schema.json", "environment.json", "noisy_labels.csv", "noise.json", "metrics.jsonl"),
    *("model.safetensors", "ledger.safetensors", "results.json", "text.safetensors"),
)

_UNFINISHED = re.compile(
    r"\..*\.tmp$|\.tmp\w+$|ledger-\d+\.safetensors$"
)  # a ledger is written just before its checkpoint


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that a run would overwrite, or that holds nothing to resume."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose another run folder with --run.")
    # A run that was killed while it wrote a file leaves the unfinished one behind.
    found = folder.iterdir() if folder.exists() else ()
    names = {path.name for path in found if not _UNFINISHED.match(path.name)}
    if resume:
        if "config.yaml" not in names:
            raise UserError(f"There is no run to resume in {folder}: check --run, or leave --resume out.")
    elif names & {CHECKPOINT, PREVIOUS}:
        raise UserError(
            f"{folder} holds a run already: continue it with --resume, or choose another folder with --run."
        )
    elif names - _FIRST_FILES:
        raise UserError(f"{folder} is not empty: choose another run folder with --run.")


def new_folder(parent: Path, name: str) -> Path:
    """Make the first of name, name-2, name-3, ... that does not exist yet."""
    candidates = itertools.chain([parent / name], (parent / f"{name}-{n}" for n in itertools.count(2)))
    for folder in candidates:
        try:
            folder.mkdir(parents=True)  # fails where another process was faster
        except FileExistsError:
            continue
        return folder
    raise AssertionError("the candidates never end")


def chosen_settings(folder: Path) -> frozenset[str]:
    """Return the settings that a run in this folder chose by itself, as its plan.json says."""
    try:
        return frozenset(read_json(folder / "plan.json")["chosen"]) & flat(config_as_dict(Config())).keys()
    except (UserError, KeyError, TypeError):  # an older run: it chose nothing
        return frozenset()


def _has_plan(folder: Path) -> bool:
    try:
        return bool(read_json(folder / "plan.json"))
    except UserError:  # damaged or gone, or the run is an older one
        return False


def start_folder(folder: Path, trainer: Trainer, resumed: bool = False) -> None:
    """Write what is known before the first step; the plan of a run that is resumed stays as it was."""
    try:
        (folder / CHECKSUMS).unlink(missing_ok=True)  # until the run is finished again
        if not resumed or not _has_plan(folder):
            write_json(folder / "plan.json", asdict(trainer.plan))
        write_text(folder / "config.yaml", yaml.safe_dump(config_as_dict(trainer.config), sort_keys=False))
        write_json(folder / "schema.json", description(trainer).to_dict())
        schema = trainer.task.dataset.schema
        if schema is not None and schema.encoder is not None:
            schema.encoder.save(folder)
        write_json(folder / "environment.json", environment(trainer.device))
        skipped = trainer.task.dataset.skipped
        if skipped:
            write_safe_csv(pd.DataFrame(skipped, columns=["name", "reason"]), folder / "bad_images.csv")
        rows, labels = trainer.task.all_labels()
        save_labels(labels, rows, folder / "noisy_labels.csv")
        write_json(folder / "noise.json", noise_summary(labels))
    except OSError as error:
        raise UserError(f"Cannot write to {folder} ({error.strerror or error}): choose another --run.") from error


def description(trainer: Trainer) -> ModelDescription:
    """Return what the run's model needs to be built again and to read new data."""
    config, task, origin = trainer.config, trainer.task.seen, trainer.task.origin
    # Weights of a file change the network around them as `+pretrained` does: it gets their scale.
    name = config.model if config.weights is None else f"{config.model}{PRETRAINED}"
    return ModelDescription(
        task.dataset.classes,
        name,
        len(trainer.model.members) if isinstance(trainer.model, Ensemble) else 1,
        tuple(task.noisy.inputs.shape[1:]),
        task.dataset.schema,
        views_of(config, task),
        None if origin is None else Pretrained.from_dict(origin.described),
    )


def finish_folder(
    folder: Path,
    model: nn.Module,
    record: AuditRecord,
    results: dict[str, Any],
    device: torch.device,
    settings: AuditSettings,
) -> None:
    """Write what is known after the last step; results.json comes last and says that the run is complete."""
    save_weights(folder / "model.safetensors", model)
    save_record(record, folder / "ledger.safetensors")
    write_audit(folder, settings)
    write_json(folder / "results.json", {**results, **peak_memory(device)})
    write_checksums(folder, _CHECKED)
