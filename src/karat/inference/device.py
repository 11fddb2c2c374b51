"""Where models compute."""

import torch

from karat.errors import UserError


def compute_device(name: str) -> torch.device:
    """Return the device of this kind; "auto" is a GPU if torch sees one, else the CPU."""
    seen = torch.cuda.is_available()
    if name == "cuda" and not seen:
        raise UserError("This machine has no device 'cuda': write training.device: auto.")
    return torch.device("cuda" if seen and name != "cpu" else "cpu")
