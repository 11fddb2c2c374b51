"""The checkpoint of a run: everything that the next step depends on, and the ledger in a file of its own."""

import logging
from pathlib import Path
from typing import Any

import torch

from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint, save_checkpoint
from karat.files.tensors import checksum, read_tensors, write_tensors
from karat.settings.compare import check_same_config
from karat.settings.config import Config, config_as_dict
from karat.training.environment import environment

logger = logging.getLogger("karat")


def identity(config: Config, task: NoisyTask, device: torch.device) -> dict[str, Any]:
    """Return what a checkpoint belongs to: settings, data, machine."""
    return {"config": config_as_dict(config), "data": task.fingerprint(), "environment": environment(device)}


def save_with_ledger(folder: Path, state: dict[str, Any]) -> None:
    """Write checkpoint.pt, and the ledger of its trainer to a file of its own, which the checkpoint names.

    The old checkpoint's ledger goes only when the new checkpoint is in place: whenever a run is killed, one checkpoint
    and its ledger are there, whole.
    """
    trainer = dict(state["trainer"])
    path = folder / f"ledger-{trainer['steps_done']}.safetensors"
    write_tensors(path, trainer.pop("ledger"))
    ledger = {"file": path.name, "checksum": checksum(path)}
    save_checkpoint(folder / "checkpoint.pt", {**state, "trainer": trainer, "ledger": ledger})
    for old in folder.glob("ledger-*.safetensors"):
        if old != path:
            old.unlink()


def read_state(folder: Path, config: Config, task: NoisyTask) -> dict[str, Any] | None:
    """Read the checkpoint of this config and these data, without its ledger; None where there is none yet."""
    path = folder / "checkpoint.pt"
    if not path.exists():  # killed before the first checkpoint
        return None
    state = load_checkpoint(path)
    check_same_config(state["config"], config_as_dict(config), path)
    if state["data"] != task.fingerprint():
        raise UserError(
            f"{path} was trained on other data than {config.data.name} holds now: "
            "put the old data back, or start a new run with another --run."
        )
    return state


def with_ledger(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a checkpoint with the ledger that it names."""
    path = folder / Path(state["ledger"]["file"]).name
    if not path.exists() or checksum(path) != state["ledger"]["checksum"]:
        raise UserError(f"{path} is damaged or missing, and the checkpoint beside it needs it: start a new run.")
    return {**state, "trainer": {**state["trainer"], "ledger": read_tensors(path)[0]}}


def warn_of_changes(state: dict[str, Any], device: torch.device) -> None:
    """Say where the machine is another one than that of the checkpoint."""
    now = environment(device)
    changed = [f"{key} was {old} and is now {now[key]}" for key, old in state["environment"].items() if old != now[key]]
    if changed:
        logger.warning("The run goes on, but perhaps not to the same bits: %s.", "; ".join(changed))
