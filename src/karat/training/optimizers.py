"""Optimizers by name: those whose step the look-ahead can differentiate. A new one of torch is a line of the table."""

import inspect
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from karat.algorithm.muon import Muon
from karat.errors import UserError, choose
from karat.settings.config import OptimizerSettings

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "muon": Muon,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adamax": torch.optim.Adamax,
    "adadelta": torch.optim.Adadelta,
}


class Usual(NamedTuple):
    """What an optimizer gets where nobody says."""

    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4


USUAL = {"muon": Usual(momentum=0.6, weight_decay=0.1)}
# Of a pretrained network that is fine-tuned: rates at which networks begin from nothing would undo what it knows.
PRETRAINED_USUAL: dict[str, Any] = {"name": "adamw", "rate": 1e-4, "weight_decay": 0.01}
# Of muon, times the rate: BatchNorm's shifts and other vectors, and the last layer. Neither decays. Shifts at 50 learn
# as much (CIFAR-10, 10,000 images, true labels: 79.5 and 79.6), and nothing in method karat on 34 small images.
MUON_OPTIONS = {"bias_rate": 10.0, "head_rate": 10.0}
# Arguments that are settings of their own, and those that say how torch computes: what is left are options.
_SETTINGS = ("self", "params", "lr", "weight_decay", "momentum", "nesterov")
_COMPUTATION = ("foreach", "fused", "capturable", "differentiable", "maximize")
_OF_GROUPS = ("orthogonal", "rate_factor")  # muon's, one for each kind of parameter


def arguments_of(name: str) -> tuple[str, ...]:
    """Return the arguments that the optimizer of this name takes.

    >>> "momentum" in arguments_of("sgd"), "momentum" in arguments_of("adam")
    (True, False)
    """
    return tuple(inspect.signature(choose("optimizer", name, OPTIMIZERS)).parameters)


def settled(settings: OptimizerSettings, model: str) -> OptimizerSettings:
    """Return the settings with everything that was left open, for a network by its name.

    >>> settled(OptimizerSettings(), "fast").name, settled(OptimizerSettings(), "small").rate
    ('muon', 0.1)
    """
    name = settings.name
    if name == "auto":
        name = "muon" if model.split("-")[0] == "fast" else "sgd"
    usual = USUAL.get(name, Usual())
    return replace(
        settings,
        name=name,
        rate=usual.rate if settings.rate is None else settings.rate,
        momentum=usual.momentum if settings.momentum is None else settings.momentum,
        weight_decay=usual.weight_decay if settings.weight_decay is None else settings.weight_decay,
    )


def settled_for_pretrained(settings: OptimizerSettings) -> OptimizerSettings:
    """Return the settings with everything that was left open, for a network that has learned before.

    >>> settled_for_pretrained(OptimizerSettings()).rate, settled_for_pretrained(OptimizerSettings(rate=0.01)).name
    (0.0001, 'adamw')
    """
    usual = {name: value for name, value in PRETRAINED_USUAL.items() if getattr(settings, name) in (None, "auto")}
    return settled(replace(settings, **usual), "")


def make_optimizer(module: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Build an optimizer of all parameters of a network that are trained; momentum goes to those that have one.

    >>> network = nn.Linear(1, 1)
    >>> make_optimizer(network, OptimizerSettings("adamw", options={"betas": [0.9, 0.95]})).param_groups[0]["betas"]
    (0.9, 0.95)
    >>> make_optimizer(network, OptimizerSettings("adamw", options={"beta": 0.9}))
    Traceback (most recent call last):
    karat.errors.UserError: Unknown option of adamw 'beta'. Did you mean 'betas'? Choose one of: amsgrad, betas, eps.
    """
    settings = settled(settings, "")
    arguments = arguments_of(settings.name)
    given: dict[str, Any] = {"lr": settings.rate, "weight_decay": settings.weight_decay}
    if "momentum" in arguments:
        given["momentum"] = settings.momentum
    if settings.nesterov and settings.name != "muon":
        if "nesterov" not in arguments or settings.momentum == 0:
            raise UserError("optimizer.nesterov needs optimizer.name: sgd and a momentum above 0.")
        given["nesterov"] = True
    options = _options(settings, arguments)
    parameters: Any = [p for p in module.parameters() if p.requires_grad]
    if settings.name == "muon":
        parameters, options = muon_groups(module, **(MUON_OPTIONS | options)), {}
    kind: Any = OPTIMIZERS[settings.name]
    try:
        return kind(parameters, **given, **options)
    except (TypeError, ValueError) as error:  # the optimizer's own check of the numbers
        raise UserError(f"The optimizer cannot be built ({error}): mend the optimizer settings.") from error


def muon_groups(module: nn.Module, bias_rate: float, head_rate: float) -> list[dict[str, Any]]:
    """Sort the parameters of a network: matrices and convolutions, vectors, and the last linear layer.

    >>> network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    >>> [len(group["params"]) for group in muon_groups(network, bias_rate=10.0, head_rate=10.0)]
    [1, 1, 2]
    """
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    head = set(linear[-1].parameters()) if linear else set()
    trained = [p for p in module.parameters() if p.requires_grad]
    as_sgd = {"orthogonal": False, "weight_decay": 0.0}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trained if p not in head and p.dim() >= 2]},
        {"params": [p for p in trained if p not in head and p.dim() < 2], **as_sgd, "rate_factor": bias_rate},
        {"params": [p for p in trained if p in head], **as_sgd, "rate_factor": head_rate},
    ]
    return [group for group in groups if group["params"]]


def _options(settings: OptimizerSettings, arguments: tuple[str, ...]) -> dict[str, Any]:
    known = (*arguments, *MUON_OPTIONS) if settings.name == "muon" else arguments
    legal = {name: name for name in known if name not in _SETTINGS + _COMPUTATION + _OF_GROUPS}
    found = {}
    for name, value in (settings.options or {}).items():
        found[choose(f"option of {settings.name}", name, legal)] = tuple(value) if isinstance(value, list) else value
    return found


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
