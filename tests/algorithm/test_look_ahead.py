"""The look-ahead is what `optimizer.step()` would do, seen on a deep copy."""

import copy

import pytest
import torch
from torch import nn

from karat.algorithm.look_ahead import look_ahead
from karat.algorithm.muon import Muon
from karat.errors import UserError

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.4}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "maximize": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "maximize": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
    "amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adamw_maximize": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
    "adadelta": (torch.optim.Adadelta, {"lr": 0.5}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01, "weight_decay": 0.1}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
    "muon": (Muon, {"lr": 0.1}),
    "muon_decay": (Muon, {"lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 0.01}),
    "muon_as_sgd": (Muon, {"lr": 0.1, "orthogonal": False, "rate_factor": 0.5, "weight_decay": 0.01}),
}


def trained(name, steps):
    """Return a module with two parameter groups of different rates, after some optimizer steps."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    kind, options = OPTIMIZERS[name]
    groups = [
        {"params": module[0].parameters(), "lr": options["lr"] / 3},
        {"params": module[2].parameters()},
    ]
    optimizer = kind(groups, **options)
    for _ in range(steps):
        backward(module)
        optimizer.step()
    return module, optimizer


def backward(module):
    module.zero_grad()
    nn.functional.cross_entropy(module(torch.randn(6, 5).double()), torch.randint(3, (6,))).backward()


@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equals_a_real_step(name, steps):
    module, optimizer = trained(name, steps)
    backward(module)
    module[2].bias.grad = None  # an unused parameter stays where it is, without decay or momentum
    parameters = dict(module.named_parameters())
    gradients = {n: p.grad for n, p in parameters.items()}
    state = copy.deepcopy(optimizer.state_dict())

    ahead = look_ahead(optimizer, parameters, gradients)

    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)
    stepped, real = copy.deepcopy((module, optimizer))
    for copied, original in zip(stepped.parameters(), module.parameters(), strict=True):
        copied.grad = None if original.grad is None else original.grad.clone()
    real.step()
    for parameter, (parameter_name, expected) in zip(module.parameters(), stepped.named_parameters(), strict=True):
        assert torch.equal(parameter, parameters[parameter_name])
        # NAdam keeps a factor of its own in float32; the look-ahead's copy is the more exact one.
        atol = 1e-9 if name == "nadam" else 1e-12
        torch.testing.assert_close(ahead.parameters[parameter_name], expected.data, rtol=1e-12, atol=atol)


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pullback_is_the_derivative_of_the_step(name, steps):
    """`pullback(v)·d = −v·(Θ'(g + h·d) − Θ'(g − h·d)) / 2h` for any direction d."""
    module, optimizer = trained(name, steps)
    backward(module)
    parameters = dict(module.named_parameters())
    gradients = {n: p.grad.clone() for n, p in parameters.items()}
    direction = {n: torch.randn_like(g) for n, g in gradients.items()}
    vector = {n: torch.randn_like(g) for n, g in gradients.items()}
    h = 1e-6

    def moved(factor):
        shifted = {n: g + factor * direction[n] for n, g in gradients.items()}
        return look_ahead(optimizer, parameters, shifted).parameters

    pulled = look_ahead(optimizer, parameters, gradients).pullback(vector)
    found = sum((pulled[n] * direction[n]).sum() for n in pulled)
    ahead, behind = moved(h), moved(-h)
    expected = -sum((vector[n] * (ahead[n] - behind[n])).sum() for n in vector) / (2 * h)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["adam", "nadam", "radam", "adamax"])
def test_counters_in_float64_are_left_alone(name):
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # torch's counters have the default type
    try:
        module, optimizer = trained(name, 2)
        state = copy.deepcopy(optimizer.state_dict())
        backward(module)
        look_ahead(optimizer, dict(module.named_parameters()), {n: p.grad for n, p in module.named_parameters()})
    finally:
        torch.set_default_dtype(usual)
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)


def test_rate_replaces_the_rate_of_every_group():
    module, optimizer = trained("sgd", 0)
    parameters = dict(module.named_parameters())
    gradients = {n: torch.ones_like(p) for n, p in parameters.items()}
    ahead = look_ahead(optimizer, parameters, gradients, rate=0.7)
    for name, parameter in parameters.items():
        torch.testing.assert_close(ahead.parameters[name], parameter.data - 0.7)


def test_parameters_outside_the_optimizer_stay():
    module = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([module.weight], lr=1.0)
    parameters = dict(module.named_parameters())
    gradients = {n: torch.ones_like(p) for n, p in parameters.items()}
    ahead = look_ahead(optimizer, parameters, gradients)
    assert torch.equal(ahead.parameters["bias"], module.bias)
    assert set(ahead.pullback(gradients)) == {"weight"}


def test_refuses_an_optimizer_that_cannot_be_differentiated():
    module = nn.Linear(2, 2)
    optimizer = torch.optim.LBFGS(module.parameters())
    with pytest.raises(UserError, match="LBFGS: use SGD, Adam, AdamW"):
        look_ahead(optimizer, dict(module.named_parameters()), {})
