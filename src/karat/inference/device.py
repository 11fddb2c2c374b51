"""Where models compute."""

import torch
from lightning_fabric import Fabric

from karat.errors import UserError


def make_fabric(device: str) -> Fabric:
    """Return Lightning Fabric on one device of this kind; "auto" is a GPU if torch sees one, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return Fabric(accelerator=device, devices=1)
    except RuntimeError as error:
        raise UserError(f"This machine has no device '{device}': write training.device: auto.") from error
