"""The folder of a run: what is in it, and when it may be written to.

config.yaml         everything that was asked for, resolved
plan.json           what nobody asked for and Karat chose: network, length, batch size, and why
schema.json         what new data must look like: how they become inputs, the classes, the network
environment.json    versions, device and threads
noisy_labels.csv    the given labels, and the true ones where they are known
bad_images.csv      images that cannot be read, where there are some, and why
noise.json          how many labels are wrong and the matrix [true, given], asked for and realised, where known
metrics.jsonl       one line an evaluation
checkpoint.pt       everything that the next step depends on, but for
ledger-STEP.safetensors   the ledger at that step
model.safetensors   the model taken at the lowest learning rate
ledger.safetensors  what training learned about every example: all that the audit needs
label_issues.csv    the noisy examples, the most suspicious first
cleaned_labels.csv  all train examples with the label to keep: kept, changed, dropped, trusted
noise_estimate.json how many labels are wrong, with an interval, and the matrix [true, given]
results.json        test accuracy of selected, averaged and raw weights (null without test examples), noise rate, time
curves.png, .svg    test accuracy over the epochs; without test examples the agreement with the labels
coefficients.png, .svg   weights and label trust of right and wrong labels, where they are known
report.html, report_files/   all of it to look at, and the review of the labels
"""

import itertools
import json
import logging
import platform
import re
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from torch import nn

from karat.audit.record import AuditRecord, LabelledRows, save_record, verified_sample
from karat.audit.run_audit import write_audit
from karat.data.noise.label_files import save_labels
from karat.data.noise.summary import noise_summary
from karat.errors import UserError
from karat.files.atomic import write_text
from karat.files.metrics_log import read_metrics
from karat.files.safe_csv import write_safe_csv
from karat.inference.evaluation import predict_probabilities
from karat.methods.shared.ensemble import Ensemble
from karat.report.plots import accuracy_curves, coefficient_curves, save_figure, untested_curves
from karat.settings.config import Config, config_as_dict, flat
from karat.training.checkpoints import load_checkpoint, save_weights, with_ledger
from karat.training.trainer import Trainer

try:
    import resource
except ImportError:  # not a Unix: memory is not counted there
    resource = None  # type: ignore[assignment]

logger = logging.getLogger("karat")

DESCRIPTION = "karat model 1"

# What a run writes before its first checkpoint; with nothing else in it, a folder has nothing to lose.
_FIRST_FILES = {
    *("config.yaml", "plan.json", "schema.json", "environment.json", "noisy_labels.csv", "noise.json", "metrics.jsonl"),
    *("bad_images.csv", ".lock"),
}

_UNFINISHED = re.compile(r"\..*\.tmp$|ledger-\d+\.safetensors$")  # a ledger is written just before its checkpoint


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
    elif "checkpoint.pt" in names:
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


def what_counts(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with dotted keys, without those of other methods: they do not change the run.

    >>> what_counts({"method": "gce", "methods": {"gce": {"exponent": 0.4}, "elr": {"weight": 3.0}}})
    {'method': 'gce', 'methods.gce.exponent': 0.4}
    """
    own = {name: value for name, value in config.get("methods", {}).items() if name == config["method"]}
    return flat({**config, "methods": own})


def differences(stored: dict[str, Any], asked: dict[str, Any], chosen: frozenset[str] = frozenset()) -> list[str]:
    """Return what differs in the settings that count; what the stored run chose itself may be left open in the other.

    >>> differences({"method": "ieg", "model": "small"}, {"method": "ieg", "model": "auto"})
    ['model was small and is now auto']
    >>> differences({"method": "ieg", "model": "small"}, {"method": "ieg", "model": "auto"}, frozenset({"model"}))
    []
    """
    before, now = what_counts(stored), what_counts(asked)
    return [
        f"{key} was {before.get(key)} and is now {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not (key in chosen and now.get(key) in (None, "auto"))
    ]


def check_same_config(
    stored: dict[str, Any], asked: dict[str, Any], where: Path, chosen: frozenset[str] = frozenset()
) -> None:
    """Refuse to go on with another config than the stored one; name what differs."""
    different = differences(stored, asked, chosen)
    if different:
        raise UserError(
            f"{where} belongs to another config ({'; '.join(different)}): "
            "resume without these options, or start a new run with another --run."
        )


def environment(trainer: Trainer) -> dict[str, Any]:
    """Return what decides the last bits of a result: versions, device, threads."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("karat", "torch", "kornia", "lightning-fabric", "numpy")},
        "device": str(trainer.device),
        "threads": torch.get_num_threads(),
    }


def read_state(folder: Path, config: Config, trainer: Trainer) -> dict[str, Any] | None:
    """Read the checkpoint of this config and these data; None where there is none yet."""
    path = folder / "checkpoint.pt"
    if not path.exists():  # killed before the first checkpoint
        return None
    state = load_checkpoint(path)
    check_same_config(state["config"], config_as_dict(config), path)
    if state["data"] != trainer.task.fingerprint():
        raise UserError(
            f"{path} was trained on other data than {config.data.name} holds now: "
            "put the old data back, or start a new run with another --run."
        )
    now = environment(trainer)
    changed = [f"{key} was {old} and is now {now[key]}" for key, old in state["environment"].items() if old != now[key]]
    if changed:
        logger.warning("The run goes on, but perhaps not to the same bits: %s.", "; ".join(changed))
    return with_ledger(folder, state)


def chosen_settings(folder: Path) -> frozenset[str]:
    """Return the settings that a run in this folder chose by itself, as its plan.json says."""
    try:
        return frozenset(json.loads((folder / "plan.json").read_text(encoding="utf-8"))["chosen"])
    except (OSError, ValueError, KeyError, TypeError):  # an older run: it chose nothing
        return frozenset()


def start_folder(folder: Path, trainer: Trainer, resumed: bool = False) -> None:
    """Write what is known before the first step; the plan of a run that is resumed stays as it was."""
    try:
        if not resumed:
            write_text(folder / "plan.json", json.dumps(asdict(trainer.plan), indent=2) + "\n")
        write_text(folder / "config.yaml", yaml.safe_dump(config_as_dict(trainer.config), sort_keys=False))
        write_text(folder / "schema.json", json.dumps(description(trainer), indent=2) + "\n")
        write_text(folder / "environment.json", json.dumps(environment(trainer), indent=2) + "\n")
        skipped = trainer.task.dataset.skipped
        if skipped:
            write_safe_csv(pd.DataFrame(skipped, columns=["name", "reason"]), folder / "bad_images.csv")
        rows, labels = trainer.task.all_labels()
        save_labels(labels, rows, folder / "noisy_labels.csv")
        write_text(folder / "noise.json", json.dumps(noise_summary(labels), indent=2) + "\n")
    except OSError as error:
        raise UserError(f"Cannot write to {folder} ({error.strerror or error}): choose another --run.") from error


def description(trainer: Trainer) -> dict[str, Any]:
    """Return what a model needs to be built again and to read new data: plain values for schema.json."""
    task, schema = trainer.task, trainer.task.dataset.schema
    return {
        "format": DESCRIPTION,
        "classes": list(task.dataset.classes),
        "model": trainer.config.model,
        "networks": len(trainer.model.members) if isinstance(trainer.model, Ensemble) else 1,
        "input_shape": list(task.noisy.inputs.shape[1:]),
        "schema": None if schema is None else schema.to_dict(),
    }


def audit_record(trainer: Trainer, model: nn.Module) -> AuditRecord:
    """Return what the audit reads; the model predicts test examples, where there are some, and rows never seen."""
    task, test = trainer.task, trainer.task.dataset.test
    sample = test.subset(verified_sample(len(test)))
    own = trainer.method.judged(model)
    if own is not None:
        trainer.ledger.fill(torch.arange(len(task.noisy)), own.probabilities)
    unseen = (trainer.ledger.times_seen == 0).nonzero().squeeze(1)
    if own is None and len(unseen):  # by methods that learn from some rows only, or from none
        trainer.ledger.fill(unseen, predict_probabilities(model, task.noisy.subset(unseen).inputs))
    return AuditRecord(
        task.dataset.classes,
        LabelledRows(task.names, task.noisy_rows, task.noisy.labels),
        trainer.ledger,
        LabelledRows(task.trusted_names, task.trusted_rows, task.trusted.labels),
        trainer.trusted_ledger,
        predict_probabilities(model, sample.inputs) if len(sample) else torch.zeros(0, trainer.classes),
        sample.labels,
        trainer.config.method,
        None if own is None else own.transition,
    )


def peak_memory(device: torch.device) -> dict[str, int]:
    """Return the most bytes that the process had in memory so far, and those on a GPU; nothing where nobody counts."""
    found = {}
    if resource is not None:
        unit = 1 if sys.platform == "darwin" else 2**10
        found["peak_memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if device.type == "cuda":
        found["peak_device_memory"] = torch.cuda.max_memory_allocated(device)
    return found


def finish_folder(folder: Path, trainer: Trainer, selected: nn.Module, results: dict[str, Any]) -> None:
    """Write what is known after the last step; results.json comes last and says that the run is complete."""
    save_weights(folder / "model.safetensors", selected)
    save_record(audit_record(trainer, selected), folder / "ledger.safetensors")
    write_audit(folder)
    records = read_metrics(folder / "metrics.jsonl")
    if records:
        tested = all("accuracy" in record for record in records)
        curves = accuracy_curves({trainer.config.method: records}) if tested else untested_curves(records)
        save_figure(curves, folder / "curves")
    # A method may have one of them alone, and not in every phase.
    known = [key for key in ("clean_label_trust", "clean_weight_share") if records and key in records[-1]]
    if known:
        complete = [record for record in records if all(key in record for key in known)]
        save_figure(coefficient_curves(complete), folder / "coefficients")
    results = {**results, **peak_memory(trainer.device)}
    write_text(folder / "results.json", json.dumps(results, indent=2) + "\n")
