"""Optimizers by name: those of torch whose step the look-ahead can differentiate."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from karat.errors import UserError, choose
from karat.settings.config import MOMENTUM_OPTIMIZERS

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adamax": torch.optim.Adamax,
    "adadelta": torch.optim.Adadelta,
}


def make_optimizer(
    name: str,
    parameters: Iterable[Tensor],
    rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Build an optimizer; momentum goes to the two that have one.

    >>> make_optimizer("adamw", [torch.nn.Parameter(torch.zeros(1))], rate=1e-3).param_groups[0]["lr"]
    0.001
    """
    kind: Any = choose("optimizer", name, OPTIMIZERS)
    options: dict[str, Any] = {"lr": rate, "weight_decay": weight_decay}
    if name in MOMENTUM_OPTIMIZERS:
        options["momentum"] = momentum
    if nesterov:
        if name != "sgd" or momentum == 0:
            raise UserError("optimizer.nesterov needs optimizer.name: sgd and a momentum above 0.")
        options["nesterov"] = True
    try:
        return kind(parameters, **options)
    except ValueError as error:  # torch's own check of the numbers
        raise UserError(f"The optimizer cannot be built ({error}): mend the optimizer settings.") from error


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
