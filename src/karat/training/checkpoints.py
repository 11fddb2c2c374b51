"""Files that survive a crash: checkpoints of a whole run, and the weights of a model.

A file is written beside its final place and then moved there: a reader finds the old or the new one, whole.
"""

import random
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from karat.errors import UserError
from karat.files.atomic import replacing
from karat.files.tensors import checksum, read_tensors, write_tensors

FORMAT = "karat checkpoint 1"
PLAIN_TYPES = (bool, int, float, str, type(None))


def save_checkpoint(path: str | Path, state: dict[str, Any]) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers and strings to a file, all or nothing.

    Anything else is refused now: `load_checkpoint` could not read it, and would say so only when needed.
    """
    _check_plain(state, "state")
    with replacing(Path(path)) as temporary:
        torch.save({"format": FORMAT, "state": state}, temporary)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote, all tensors on the CPU; a damaged or foreign file is refused."""
    refusal = UserError(f"{path} is damaged or is not a Karat checkpoint; use another checkpoint or start anew.")
    try:
        # torch.load does not compare the archive's checksums: flipped bits would become wrong weights.
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise refusal
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise _unreadable(path, error) from error
    except UserError:
        raise
    except Exception as error:  # unpickling a foreign file can fail in any way
        raise refusal from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise refusal
    state: dict[str, Any] = content["state"]
    return state


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


def with_ledger(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a checkpoint with the ledger that it names."""
    named = state.get("ledger")
    if named is None:
        raise UserError(f"An older version of Karat made the checkpoint in {folder}: start a new run.")
    path = folder / Path(named["file"]).name
    if not path.exists() or checksum(path) != named["checksum"]:
        raise UserError(f"{path} is damaged or missing, and the checkpoint beside it needs it: start a new run.")
    return {**state, "trainer": {**state["trainer"], "ledger": read_tensors(path)[0]}}


def random_states() -> dict[str, Any]:
    """Return the states of the global generators of torch (CPU and every CUDA device), Python and NumPy.

    >>> states = random_states()
    >>> before = torch.rand(3), random.random()
    >>> restore_random_states(states)
    >>> torch.equal(torch.rand(3), before[0]) and random.random() == before[1]
    True
    """
    version, words, next_gauss = random.getstate()
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002  the global one is meant
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, torch.tensor(words), next_gauss],
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Set the global generators to what `random_states` returned; CUDA devices not here are left out."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device)
    version, words, next_gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), next_gauss))
    kind, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002


def save_weights(path: str | Path, module: nn.Module) -> None:
    """Write a model's parameters and buffers as safetensors, all or nothing; tied weights are stored once."""
    with replacing(Path(path)) as temporary:
        save_model(module, str(temporary))


def load_weights(path: str | Path, module: nn.Module) -> None:
    """Load weights that `save_weights` wrote into a model of the same shape, in place."""
    try:
        load_model(module, str(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    except SafetensorError as error:
        raise UserError(f"{path} is damaged or is not a safetensors file; use another file.") from error
    except RuntimeError as error:
        raise UserError(
            f"The weights in {path} do not fit this model; build the model they were saved from."
        ) from error


def _check_plain(value: object, where: str) -> None:
    # Exact types: a NumPy float is a float to isinstance, but not to torch.load(weights_only=True).
    if isinstance(value, Tensor) or type(value) in PLAIN_TYPES:
        return
    if type(value) in (dict, OrderedDict):
        for key, item in value.items():  # type: ignore[attr-defined]
            _check_plain(key, f"{where}, key {key!r}")
            _check_plain(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):  # type: ignore[arg-type]
            _check_plain(item, f"{where}[{index}]")
    else:
        raise TypeError(
            f"A checkpoint cannot hold a {type(value).__name__} ({where}); "
            "give tensors, plain numbers, strings, or dicts, lists and tuples of them."
        )


def _unreadable(path: str | Path, error: OSError) -> UserError:
    return UserError(f"Cannot read {path} ({error.strerror or error}); check the path.")
