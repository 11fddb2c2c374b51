"""The folder of a run: what is in it, and when it may be written to.

config.yaml         everything that was asked for, resolved
environment.json    versions, device and threads
noisy_labels.csv    the given labels, and the true ones where they are known
noise.json          how many labels are wrong and the matrix [true, given], asked for and realised, where known
metrics.jsonl       one line an evaluation
checkpoint.pt       everything that the next step depends on
model.safetensors   the model taken at the lowest learning rate
label_issues.csv    the noisy examples, the most suspicious first
results.json        test accuracy of the selected, averaged and raw weights, noise rate, time
curves.png, .svg    test accuracy over the epochs
coefficients.png, .svg   weights and label trust of right and wrong labels, where they are known
"""

import itertools
import json
import logging
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from karat.audit.label_issues import label_issues
from karat.audit.plots import accuracy_curves, coefficient_curves, save_figure
from karat.config import Config, config_as_dict, flat
from karat.data.label_files import save_labels
from karat.data.noise_report import noise_summary
from karat.data.prepare import NoisyTask
from karat.errors import UserError
from karat.files import replacing, write_text
from karat.training.checkpoints import load_checkpoint, save_weights
from karat.training.metrics import read_metrics
from karat.training.trainer import Trainer

logger = logging.getLogger("karat")

# What a run writes before its first checkpoint; with nothing else in it, a folder has nothing to lose.
_FIRST_FILES = {"config.yaml", "environment.json", "noisy_labels.csv", "noise.json", "metrics.jsonl", ".lock"}


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that a run would overwrite, or that holds nothing to resume."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose another run folder with --run.")
    # A run that was killed while it wrote a file leaves the unfinished one behind.
    found = folder.iterdir() if folder.exists() else ()
    names = {path.name for path in found if not (path.name.startswith(".") and path.name.endswith(".tmp"))}
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


def check_same_config(stored: dict[str, Any], asked: dict[str, Any], where: Path) -> None:
    """Refuse to go on with another config than the stored one; name what differs."""
    before, now = what_counts(stored), what_counts(asked)
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


def environment(trainer: Trainer) -> dict[str, Any]:
    """Return what decides the last bits of a result: versions, device, threads."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("karat", "torch", "kornia", "lightning-fabric", "numpy")},
        "device": str(trainer.device),
        "threads": torch.get_num_threads(),
    }


def read_config_values(path: Path) -> dict[str, Any]:
    """Read the values of a run's config.yaml."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({' '.join(str(error).split())}): delete the run's folder.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} holds no settings: delete the run's folder.")
    return values


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
    return state


def start_folder(folder: Path, config: Config, trainer: Trainer) -> None:
    """Write what is known before the first step."""
    try:
        write_text(folder / "config.yaml", yaml.safe_dump(config_as_dict(config), sort_keys=False))
        write_text(folder / "environment.json", json.dumps(environment(trainer), indent=2) + "\n")
        rows, labels = trainer.task.all_labels()
        save_labels(labels, rows, folder / "noisy_labels.csv")
        write_text(folder / "noise.json", json.dumps(noise_summary(labels), indent=2) + "\n")
    except OSError as error:
        raise UserError(f"Cannot write to {folder} ({error.strerror or error}): choose another --run.") from error


def finish_folder(folder: Path, trainer: Trainer, selected: nn.Module, results: dict[str, Any]) -> None:
    """Write what is known after the last step; results.json comes last and says that the run is complete."""
    task: NoisyTask = trainer.task
    save_weights(folder / "model.safetensors", selected)
    issues = label_issues(trainer.ledger, task.noisy.labels, task.noisy_rows, task.dataset.classes)
    with replacing(folder / "label_issues.csv") as temporary:
        issues.to_csv(temporary, index=False)
    records = read_metrics(folder / "metrics.jsonl")
    if records:
        save_figure(accuracy_curves({trainer.config.method: records}), folder / "curves")
    weighed = [record for record in records if "clean_weight_share" in record]  # not in every phase of every method
    if weighed:
        save_figure(coefficient_curves(weighed), folder / "coefficients")
    write_text(folder / "results.json", json.dumps(results, indent=2) + "\n")
