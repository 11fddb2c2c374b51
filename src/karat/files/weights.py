"""The weights of a model in a safetensors file, and weights that others saved."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor, nn

from karat.errors import UserError, unreadable
from karat.files.atomic import replacing
from karat.files.required import require

_CONTAINERS = ("state_dict", "model", "model_state_dict", "teacher")  # under which training scripts save weights
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"  # how torch's files begin, new and old ones
_HEADER = 8  # bytes before the first brace of safetensors


def save_weights(path: str | Path, module: nn.Module) -> None:
    """Write a model's parameters and buffers as safetensors, all or nothing; tied weights are stored once."""
    with replacing(Path(path)) as temporary:
        try:
            save_model(module, str(temporary))
        except SafetensorError as error:  # its writer's word for a full disk
            raise OSError(f"cannot write {path} ({error})") from error


def stored_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name."""
    try:
        return load_file(path)
    except OSError as error:
        raise unreadable(path, error) from error
    except SafetensorError as error:
        raise UserError(f"{path} is damaged or is not a safetensors file; use another file.") from error


def load_weights(path: str | Path, module: nn.Module) -> None:
    """Load weights that `save_weights` wrote into a model of the same shape, in place."""
    try:
        load_model(module, str(path))
    except OSError as error:
        raise unreadable(path, error) from error
    except SafetensorError as error:
        raise UserError(f"{path} is damaged or is not a safetensors file; use another file.") from error
    except RuntimeError as error:
        raise UserError(
            f"The weights in {path} do not fit this model; build the model they were saved from."
        ) from error


def read_foreign_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a file of safetensors or of torch; nothing in it is run."""
    require(path, "give the file of the weights, such as model.safetensors")
    try:
        with path.open("rb") as file:
            start = file.read(_HEADER + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if not start:
        raise UserError(f"{path} is empty: get a fresh copy of it.")
    of_torch = start.startswith((_ZIP, _PICKLE)) and start[_HEADER:] != b"{"
    return named_tensors(path, _of_torch(path, start) if of_torch else stored_tensors(path))


def named_tensors(path: Path, content: object) -> dict[str, Tensor]:
    """Return the tensors of what a file holds, without what training scripts put around them and their names.

    >>> named_tensors(Path("a.pt"), {"epoch": 3, "state_dict": {"module.bias": torch.zeros(1)}})
    {'bias': tensor([0.])}
    """
    for container in _CONTAINERS:
        if isinstance(content, Mapping) and isinstance(content.get(container), Mapping):
            content = content[container]
            break
    if not isinstance(content, Mapping) or not content or not all(isinstance(name, str) for name in content):
        raise UserError(f"{path} holds no tensors by name: save the network's state_dict().")
    tensors = {name: tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
    if len(tensors) < len(content):
        other = next(name for name in content if name not in tensors)
        raise UserError(f"{path} holds other things than tensors ('{other}'): save the network's state_dict() alone.")
    if all(name.startswith("module.") for name in tensors):  # saved from several devices
        tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    return tensors


def _of_torch(path: Path, start: bytes) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged archive fails in many ways
        # An unpickling error is torch's word for a pickle that would run code, too.
        if isinstance(error, pickle.UnpicklingError) or not start.startswith(_ZIP):
            raise UserError(
                f"{path} is damaged, or holds more than tensors and could run code, so it is not loaded: save the "
                "network's state_dict() as safetensors."
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UserError(f"{path} is damaged or is not a file of torch ({reason}): get a fresh copy of it.") from error
