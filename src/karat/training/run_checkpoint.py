"""The checkpoint of a run: everything that the next step depends on, and the ledger in a file of its own."""

import logging
import os
from pathlib import Path
from typing import Any

import torch

from karat.data.task import NoisyTask
from karat.errors import DamagedFile, UserError
from karat.files.checkpoints import load_checkpoint, save_checkpoint
from karat.files.checksums import checksum
from karat.files.required import fitting
from karat.files.tensors import read_tensors, write_tensors
from karat.settings.compare import check_same_config
from karat.settings.config import Config, config_as_dict
from karat.training.environment import environment

CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"

logger = logging.getLogger("karat")


def identity(config: Config, task: NoisyTask, device: torch.device) -> dict[str, Any]:
    """Return what a checkpoint belongs to: settings, data, machine."""
    return {"config": config_as_dict(config), "data": task.fingerprint(), "environment": environment(device)}


def save_with_ledger(folder: Path, state: dict[str, Any]) -> None:
    """Write checkpoint.pt, and the ledger of its trainer to a file of its own, which the checkpoint names.

    The checkpoint before it stays beside it, with its ledger, and serves where the new one is damaged later. What is
    older goes only when the new checkpoint is in place: whenever a run is killed, one checkpoint and its ledger are
    there, whole.
    """
    trainer = dict(state["trainer"])
    path = folder / f"ledger-{trainer['steps_done']}.safetensors"
    write_tensors(path, trainer.pop("ledger"))
    ledger = {"file": path.name, "checksum": checksum(path)}
    _keep_as_previous(folder / CHECKPOINT)
    save_checkpoint(folder / CHECKPOINT, {**state, "trainer": trainer, "ledger": ledger})
    older = sorted(step for step in map(_step, folder.glob("ledger-*.safetensors")) if step < trainer["steps_done"])
    for old in folder.glob("ledger-*.safetensors"):
        if old != path and _step(old) not in older[-1:]:
            old.unlink()


def _step(ledger: Path) -> int:
    number = ledger.stem.removeprefix("ledger-")
    return int(number) if number.isdecimal() else -1  # not one of ours


def _keep_as_previous(current: Path) -> None:
    if not current.exists():
        return
    previous = current.with_name(PREVIOUS)
    previous.unlink(missing_ok=True)
    try:
        os.link(current, previous)
    except OSError:  # a file system without links: a run that is killed now has the previous one alone
        os.replace(current, previous)


def drop_previous(folder: Path) -> None:
    """Remove the checkpoint before the last one, with its ledger: a finished run has no use for it."""
    (folder / PREVIOUS).unlink(missing_ok=True)
    for ledger in sorted(folder.glob("ledger-*.safetensors"), key=_step)[:-1]:
        ledger.unlink()


def settle(folder: Path) -> None:
    """Remove what a killed process left half written; say it and go back one where the last checkpoint is damaged.

    Only for the process that holds the folder's lock.
    """
    for unfinished in (*folder.glob(".*.tmp"), *folder.glob(".tmp*")):  # ours, and those of safetensors
        unfinished.unlink()
    current, previous = folder / CHECKPOINT, folder / PREVIOUS
    if not previous.exists():
        return
    try:
        with_ledger(folder, load_checkpoint(current) if current.exists() else _missing(current))
    except DamagedFile as error:
        step = with_ledger(folder, load_checkpoint(previous))["trainer"]["steps_done"]
        os.replace(previous, current)
        logger.warning("%s The run goes on from the checkpoint before it, of step %d.", error, step)


def _missing(path: Path) -> dict[str, Any]:
    raise DamagedFile(f"{path} is missing.")


def read_state(folder: Path, config: Config, task: NoisyTask) -> dict[str, Any] | None:
    """Read the checkpoint of this config and these data, without its ledger; None where there is none yet."""
    path = folder / CHECKPOINT
    if not path.exists():  # killed before the first checkpoint
        return None
    state = _checked(load_checkpoint(path), path)
    check_same_config(state["config"], config_as_dict(config), path)
    if state["data"] != task.fingerprint():
        raise UserError(
            f"{path} was trained on other data than {config.data.name} holds now: "
            "put the old data back, or start a new run with another --run."
        )
    return state


def _checked(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the state of a checkpoint that has all its parts, each of its kind."""
    kinds: dict[str, Any] = {**dict.fromkeys(("config", "environment", "trainer", "ledger"), dict), "data": object}
    kinds |= {"metrics": int, "metrics_checksum": int, "seconds": (int, float)}
    for name, kind in kinds.items():
        if not isinstance(state, dict) or name not in state or not isinstance(state[name], kind):
            raise DamagedFile(f"{path} is damaged ({name} is missing or wrong): start a new run.")
    if not all(type(state["trainer"].get(name)) is int for name in ("steps_done", "recoveries")):
        raise DamagedFile(f"{path} is damaged (it has no number of steps): start a new run.")
    return state


def with_ledger(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a checkpoint with the ledger that it names."""
    with fitting(folder / CHECKPOINT, "start a new run"):
        path = folder / Path(state["ledger"]["file"]).name
    if not path.exists() or checksum(path) != state["ledger"]["checksum"]:
        raise DamagedFile(f"{path} is damaged or missing, and the checkpoint beside it needs it: start a new run.")
    return {**state, "trainer": {**state["trainer"], "ledger": read_tensors(path)[0]}}


def warn_of_changes(state: dict[str, Any], device: torch.device) -> None:
    """Say where the machine is another one than that of the checkpoint."""
    now = environment(device)
    changed = [f"{key} was {old} and is now {now[key]}" for key, old in state["environment"].items() if old != now[key]]
    if changed:
        logger.warning("The run goes on, but perhaps not to the same bits: %s.", "; ".join(changed))
