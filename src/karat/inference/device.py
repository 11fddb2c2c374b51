"""Where models compute, and how."""

import os

import torch

from karat.errors import UserError


def compute_device(name: str) -> torch.device:
    """Return the device of this kind; "auto" is a GPU if torch sees one, else the CPU."""
    seen = torch.cuda.is_available()
    if name == "cuda" and not seen:
        raise UserError("This machine has no device 'cuda': write training.device: auto.")
    return torch.device("cuda" if seen and name != "cpu" else "cpu")


def make_deterministic(device: torch.device) -> None:
    """Let torch take only algorithms that give the same bits every time; those of the CPU do so anyway."""
    if device.type != "cpu":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
