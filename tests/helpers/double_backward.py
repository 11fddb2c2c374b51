"""The meta-gradient by back-propagation through back-propagation: the slow reference of the tests.

Written from the paper alone (eq. 5 and 6): the look-ahead is a differentiable function of ω and λ, the trusted
loss is evaluated there, and autograd does the rest with `create_graph=True`.
"""

import copy

import torch
import torch.nn.functional as F
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from karat.algorithm.muon import Muon


def sharpened_average(logits, temperature, normalize):
    def prediction(z):
        return F.softmax(z / z.square().mean().sqrt() if normalize else z, dim=1)

    average = sum(prediction(z) for z in logits) / len(logits)
    powered = average ** (1 / temperature)
    return powered / powered.sum(dim=1, keepdim=True)


def group_of(optimizer, parameter):
    return next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))


def differentiable_update(optimizer, parameter, gradient, rate):
    """Return what `optimizer.step()` does to one parameter, differentiably, from the published formulas."""
    group = group_of(optimizer, parameter)
    rate = group["lr"] if rate is None else rate
    state = optimizer.state.get(parameter, {})
    value = parameter.detach().clone()
    decay = group["weight_decay"] * value
    if isinstance(optimizer, Muon):
        return muon_update(group, state, value, gradient, decay, rate)
    if isinstance(optimizer, torch.optim.SGD):
        gradient = gradient + decay
        if group["momentum"] == 0:
            return value - rate * gradient
        buffer = gradient
        if "momentum_buffer" in state:
            buffer = group["momentum"] * state["momentum_buffer"] + (1 - group["dampening"]) * gradient
        return value - rate * (gradient + group["momentum"] * buffer if group["nesterov"] else buffer)
    if isinstance(optimizer, torch.optim.RMSprop):
        square = group["alpha"] * state["square_avg"] + (1 - group["alpha"]) * gradient**2
        buffer = group["momentum"] * state["momentum_buffer"] + gradient / (safe_root(square) + group["eps"])
        return value - rate * buffer
    if isinstance(optimizer, torch.optim.AdamW):
        value = value - rate * decay
    else:
        gradient = gradient + decay
    (beta1, beta2), step = group["betas"], float(state.get("step", 0)) + 1
    first = beta1 * state.get("exp_avg", 0.0) + (1 - beta1) * gradient
    second = beta2 * state.get("exp_avg_sq", 0.0) + (1 - beta2) * gradient**2
    if group["amsgrad"]:
        second = torch.maximum(second, state["max_exp_avg_sq"])
    corrected = second / (1 - beta2**step)
    return value - rate * first / (1 - beta1**step) / (safe_root(corrected) + group["eps"])


def muon_update(group, state, value, gradient, decay, rate):
    """Muon from its authors' description: the polynomial `3.4445 s − 4.7750 s³ + 2.0315 s⁵` of the singular values."""
    rate, matrix = rate * group["rate_factor"], group["orthogonal"] and value.dim() >= 2
    if not matrix:
        gradient = gradient + decay
    buffer = group["momentum"] * state.get("momentum_buffer", 0.0) + gradient
    step = gradient + group["momentum"] * buffer if group["nesterov"] else buffer
    if not matrix:
        return value - rate * step
    x = step.flatten(1) / (step.square().sum().sqrt() + 1e-7)
    for _ in range(3):
        gram = x @ x.T
        x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ (gram @ x)
    return value - rate * decay - rate * x.view_as(value)


def safe_root(square):
    """Return the root with slope 0 where the square is 0 (autograd's slope there is infinite)."""
    return torch.where(square > 0, torch.where(square > 0, square, 1.0).sqrt(), 0.0)


def double_backward(network, optimizer, inputs, given, trusted_inputs, trusted_targets, settings, states, names=None):
    """Return −∂L^p/∂ω and −∂L^p/∂λ; `states` are the random states of the forward passes of the views.

    `names` are the parameters that move; None is all that are trained.
    """
    module = copy.deepcopy(network.module)
    originals = dict(network.module.named_parameters())
    leaves = {n: p for n, p in module.named_parameters() if p.requires_grad and (names is None or n in names)}
    weights = torch.full((len(given),), 1 / len(given), dtype=given.dtype, requires_grad=True)
    trust = torch.full_like(weights, settings.initial_label_trust).detach().requires_grad_()

    with sdpa_kernel(SDPBackend.MATH):
        logits = []
        for view, state in zip(inputs, states, strict=True):
            torch.set_rng_state(state.cpu)
            logits.append(network.logits_of(module(view)))
        pseudo = sharpened_average(logits, settings.temperature, settings.normalize_logits)
        if not settings.pseudo_label_gradient:
            pseudo = pseudo.detach()
        targets = trust[:, None] * given + (1 - trust[:, None]) * pseudo
        losses = -(targets * F.log_softmax(logits[0], dim=1)).sum(dim=1)
        gradients = torch.autograd.grad(
            (weights * losses).sum(), list(leaves.values()), create_graph=True, allow_unused=True
        )
        ahead = {
            name: leaf
            if gradient is None
            else differentiable_update(optimizer, originals[name], gradient, settings.look_ahead_rate)
            for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
        }
        trusted_logits = network.logits_of(functional_call(module, ahead, (trusted_inputs,)))
        trusted_loss = -(trusted_targets * F.log_softmax(trusted_logits, dim=1)).sum(dim=1).mean()
        if settings.trusted_weight_decay:
            for name, value in ahead.items():
                decay = group_of(optimizer, originals[name])["weight_decay"]
                trusted_loss = trusted_loss + decay / 2 * value.square().sum()
        weight_slope, trust_slope = torch.autograd.grad(trusted_loss, [weights, trust])
    return -weight_slope, -trust_slope
