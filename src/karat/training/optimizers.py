"""Optimizers by name: those of torch whose step the look-ahead can differentiate. A new one is a line of the table."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from karat.errors import UserError, choose
from karat.settings.config import OptimizerSettings

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
# Arguments that are settings of their own, and those that say how torch computes: what is left are options.
_SETTINGS = ("self", "params", "lr", "weight_decay", "momentum", "nesterov")
_COMPUTATION = ("foreach", "fused", "capturable", "differentiable", "maximize")


def arguments_of(name: str) -> tuple[str, ...]:
    """Return the arguments that torch's optimizer of this name takes.

    >>> "momentum" in arguments_of("sgd"), "momentum" in arguments_of("adam")
    (True, False)
    """
    return tuple(inspect.signature(choose("optimizer", name, OPTIMIZERS)).parameters)


def make_optimizer(parameters: Iterable[Tensor], settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Build an optimizer; momentum goes to those that have one.

    >>> weights = [torch.nn.Parameter(torch.zeros(1))]
    >>> make_optimizer(weights, OptimizerSettings("adamw", options={"betas": [0.9, 0.95]})).param_groups[0]["betas"]
    (0.9, 0.95)
    >>> make_optimizer(weights, OptimizerSettings("adamw", options={"beta": 0.9}))
    Traceback (most recent call last):
    karat.errors.UserError: Unknown option of adamw 'beta'. Did you mean 'betas'? Choose one of: amsgrad, betas, eps.
    """
    arguments = arguments_of(settings.name)
    given: dict[str, Any] = {"lr": settings.rate, "weight_decay": settings.weight_decay}
    if "momentum" in arguments:
        given["momentum"] = settings.momentum
    if settings.nesterov:
        if "nesterov" not in arguments or settings.momentum == 0:
            raise UserError("optimizer.nesterov needs optimizer.name: sgd and a momentum above 0.")
        given["nesterov"] = True
    legal = {name: name for name in arguments if name not in _SETTINGS + _COMPUTATION}
    for name, value in (settings.options or {}).items():
        given[choose(f"option of {settings.name}", name, legal)] = tuple(value) if isinstance(value, list) else value
    kind: Any = OPTIMIZERS[settings.name]
    try:
        return kind(parameters, **given)
    except (TypeError, ValueError) as error:  # torch's own check of the numbers
        raise UserError(f"The optimizer cannot be built ({error}): mend the optimizer settings.") from error


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
