"""The parameters after one virtual optimizer step, Θ_{t+1}(ω, λ), and how they depend on the gradient.

The step is the one that `optimizer.step()` would take from its live state (momentum buffers, second moments,
weight decay, parameter groups); the optimizer and the model are left untouched.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from karat.algorithm.network import Parameters
from karat.errors import UserError


class LookAhead(NamedTuple):
    """The parameters after a virtual step, and the pullback of that step.

    `pullback(v) = −(∂Θ'/∂g)ᵀ v`: the direction in which the noisy examples' losses are differentiated. For
    SGD it is α·v, with Nesterov momentum α·(1+μ)·v, for Adam an elementwise factor times v.
    """

    parameters: Parameters
    pullback: Callable[[Parameters], Parameters]


class _Update(NamedTuple):
    """The look-ahead of one tensor: where it goes, and `−∂Θ'/∂g` elementwise."""

    value: Tensor
    sensitivity: Tensor | float


def look_ahead(
    optimizer: Optimizer,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor | None],
    rate: float | None = None,
) -> LookAhead:
    """Take one virtual step of the optimizer along the gradients.

    Parameters that the optimizer does not hold, or that have no gradient, stay where they are, as they do in
    `optimizer.step()`. `rate` replaces the learning rate of all parameter groups.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> sgd = SGD([weight], lr=0.5)
    >>> ahead = look_ahead(sgd, {"weight": weight}, {"weight": torch.tensor([0.2])})
    >>> ahead.parameters["weight"], ahead.pullback({"weight": torch.tensor([1.0])})["weight"]
    (tensor([0.9000]), tensor([0.5000]))
    """
    rule = next((rule for kind, rule in _CLOSED_FORMS.items() if type(optimizer) is kind), None)
    if rule is None:
        return _differentiate_step(optimizer, parameters, gradients, rate)
    values = {name: p.detach() for name, p in parameters.items()}
    sensitivities: dict[str, Tensor | float] = {}
    with torch.no_grad():
        for name, group in _moving(optimizer, parameters, gradients):
            state = optimizer.state.get(parameters[name], {})
            gradient = gradients[name]
            assert gradient is not None
            group_rate = group["lr"] if rate is None else rate
            update = rule(values[name], gradient, state, group, group_rate)
            values[name], sensitivities[name] = update.value, update.sensitivity

    def pullback(vector: Parameters) -> Parameters:
        return {name: factor * vector[name] for name, factor in sensitivities.items()}

    return LookAhead(values, pullback)


def weight_decay_of(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the weight decay of each parameter that the optimizer holds."""
    group_of = _groups(optimizer)
    return {name: group_of[p].get("weight_decay", 0.0) for name, p in parameters.items() if p in group_of}


def _groups(optimizer: Optimizer) -> dict[Tensor, dict[str, Any]]:
    return {p: group for group in optimizer.param_groups for p in group["params"]}


def _moving(
    optimizer: Optimizer, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    group_of = _groups(optimizer)
    for name, parameter in parameters.items():
        if parameter in group_of and gradients.get(name) is not None:
            yield name, group_of[parameter]


def _sgd(value: Tensor, gradient: Tensor, state: dict, group: dict, rate: float) -> _Update:
    """d = g + wd·Θ;  b = μ·b + (1−dampening)·d (b = d at first);  Θ' = Θ − α·(b, or d + μ·b for Nesterov)."""
    sign = -1.0 if group["maximize"] else 1.0
    momentum = group["momentum"]
    step = sign * gradient + group["weight_decay"] * value
    factor = 1.0
    if momentum:
        buffer = state.get("momentum_buffer")
        if buffer is not None:
            factor = 1 - group["dampening"]
            buffer = momentum * buffer + factor * step
        else:
            buffer = step
        if group["nesterov"]:
            step, factor = step + momentum * buffer, 1 + momentum * factor
        else:
            step = buffer
    return _Update(value - rate * step, sign * rate * factor)


def _adam(value: Tensor, gradient: Tensor, state: dict, group: dict, rate: float, decoupled: bool = False) -> _Update:
    """m̂ and v̂ from the next moments;  Θ' = Θ − α·m̂/(√v̂ + ε), and its derivative with respect to g."""
    sign = -1.0 if group["maximize"] else 1.0
    beta1, beta2 = group["betas"]
    count = float(state["step"]) + 1 if state else 1.0
    first = state["exp_avg"] if state else torch.zeros_like(value)
    second = state["exp_avg_sq"] if state else torch.zeros_like(value)

    step = sign * gradient
    if group.get("decoupled_weight_decay", decoupled):
        value = value * (1 - rate * group["weight_decay"])
    else:
        step = step + group["weight_decay"] * value
    first = beta1 * first + (1 - beta1) * step
    second = beta2 * second + (1 - beta2) * step.square()
    second_slope = 2 * (1 - beta2) * step
    if group["amsgrad"]:
        highest = state["max_exp_avg_sq"] if state else torch.zeros_like(value)
        second_slope = torch.where(second >= highest, second_slope, 0.0)
        second = torch.maximum(second, highest)
    first, first_slope = first / (1 - beta1**count), (1 - beta1) / (1 - beta1**count)
    second, second_slope = second / (1 - beta2**count), second_slope / (1 - beta2**count)

    root = second.sqrt()
    denominator = root + group["eps"]
    # √v̂ has slope v̂'/(2√v̂); where v̂ = 0 the gradient is 0 and m̂ with it: the term vanishes.
    root_slope = torch.where(root > 0, second_slope / (2 * root), 0.0)
    slope = first_slope / denominator - first * root_slope / denominator.square()
    return _Update(value - rate * first / denominator, sign * rate * slope)


_CLOSED_FORMS: dict[type[Optimizer], Callable[[Tensor, Tensor, dict, dict, float], _Update]] = {
    SGD: _sgd,
    Adam: _adam,
    AdamW: partial(_adam, decoupled=True),
}


def _differentiate_step(
    optimizer: Optimizer,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor | None],
    rate: float | None,
) -> LookAhead:
    """Look ahead with any other optimizer: run its own differentiable step on copies of its state."""
    if "differentiable" not in inspect.signature(type(optimizer).__init__).parameters:
        raise UserError(
            f"The look-ahead cannot differentiate a step of {type(optimizer).__name__}: use SGD, Adam, AdamW or "
            "another optimizer of torch.optim that has the option `differentiable`."
        )
    copies: Parameters = {}
    leaves: Parameters = {}
    groups: list[dict[str, Any]] = []
    for name, group in _moving(optimizer, parameters, gradients):
        gradient = gradients[name]
        assert gradient is not None
        copies[name] = parameters[name].detach().clone()
        leaves[name] = gradient.detach().clone().requires_grad_()
        copies[name].grad = leaves[name]
        options = {key: value for key, value in group.items() if key not in ("params", "fused", "foreach")}
        if rate is not None:
            options["lr"] = rate
        groups.append({**options, "params": [copies[name]], "differentiable": True, "foreach": False})
    kind: Any = type(optimizer)
    virtual = kind(groups, differentiable=True)
    for name, copy in copies.items():
        state = optimizer.state.get(parameters[name], {})
        virtual.state[copy].update({key: _copied(value) for key, value in state.items()})
    virtual.step()

    def pullback(vector: Parameters) -> Parameters:
        names = [name for name in copies if name in vector]
        slopes = torch.autograd.grad(
            [copies[name] for name in names],
            [leaves[name] for name in names],
            grad_outputs=[vector[name] for name in names],
        )
        # Autograd's slope of √x at 0 is infinite and makes 0·∞. Such an element has had no gradient at all, so
        # no noisy example depends on it and its direction does not matter.
        return {name: -slope.nan_to_num(nan=0.0) for name, slope in zip(names, slopes, strict=True)}

    unmoved = {name: p.detach() for name, p in parameters.items() if name not in copies}
    return LookAhead({**unmoved, **{name: copy.detach() for name, copy in copies.items()}}, pullback)


def _copied(value: Any) -> Any:
    """Copy a piece of optimizer state; counters become float64, in which bias corrections lose no digits."""
    if not isinstance(value, Tensor):
        return value
    return value.clone().double() if value.dim() == 0 else value.clone()
