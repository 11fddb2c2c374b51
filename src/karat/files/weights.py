"""The weights of a model in a safetensors file."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_model
from torch import Tensor, nn

from karat.errors import UserError, unreadable
from karat.files.atomic import replacing


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
