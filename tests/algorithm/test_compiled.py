"""Compiled passes: the network's numbers, repeatable without compiled code; the network itself where that fails."""

import logging

import pytest
import torch
from torch import nn

from karat.algorithm import compiled as module_of
from karat.algorithm.coefficients import meta_gradient
from karat.algorithm.compiled import Compiled
from karat.algorithm.network import Network, evaluation_mode
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import one_hot


@pytest.fixture(autouse=True)
def forgotten():
    """Forget what an earlier test compiled: torch keeps a limited number of variants of the same layers' code."""
    torch._dynamo.reset()
    module_of._say.cache_clear()


def network_of(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Dropout(0.4), nn.Linear(180, 4)
    )


def found(network, optimizer):
    """Return coefficients, gradients, statistics and random state after two views, a meta step and a backward."""
    torch.manual_seed(0)
    inputs, trusted = torch.randn(12, 3, 8, 8), torch.randn(6, 3, 8, 8)
    given, verified = (one_hot(torch.arange(count) % 4, 4, like=inputs) for count in (12, 6))
    views = [network.forward_pass(view) for view in (inputs, inputs.flip(3))]
    coefficients = meta_gradient(network, optimizer, views, given, trusted, verified, AlgorithmSettings())
    joint = network(torch.cat([inputs, trusted]))  # of another shape, while the graphs of the views are in use
    (views[0].logits.square().mean() + views[1].logits.exp().mean() + joint.mean()).backward()
    gradients = [parameter.grad for parameter in network.module.parameters()]
    return [*coefficients, *gradients, *network.module.buffers(), torch.get_rng_state()]


def compare(pieces=None):
    """Skip where torch finds no compiler, as on a machine without one."""
    results = []
    for is_compiled in (False, True):
        module = network_of().train()
        network = Network(module, pieces=pieces, compiled=Compiled(module) if is_compiled else None)
        results.append(found(network, torch.optim.SGD(module.parameters(), lr=0.1)))
    assert network.compiled is not None
    if network.compiled.failed:
        pytest.skip("torch.compile does not work here")
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_compiled_passes_have_the_numbers_of_the_network():
    """With dropout, whose masks the Jacobian-vector product draws again without compiled code, and trials that leave
    neither statistics nor random numbers behind."""
    compare()


@pytest.mark.parametrize("pieces", [None, 1])
def test_graphs_are_gone_back_through_twice_and_computed_again(pieces, monkeypatch):
    """By the graphs that torch would compile, without a compiler."""
    compile_graphs = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda module, **_: compile_graphs(module, dynamic=False, backend="aot_eager")
    )
    compare(pieces)


def test_a_compiler_that_fails_is_said_once_and_changes_nothing(monkeypatch, caplog):
    def compile_nothing(module, **_):
        def broken(inputs):
            module(inputs)  # statistics move, random numbers are drawn
            raise RuntimeError("No compiler here.\nAnd more that nobody reads")

        return broken

    monkeypatch.setattr(torch, "compile", compile_nothing)
    results = []
    with caplog.at_level(logging.WARNING, logger="karat"):
        for is_compiled in (False, True, True):
            module = network_of().train()
            network = Network(module, compiled=Compiled(module) if is_compiled else None)
            results.append(found(network, torch.optim.SGD(module.parameters(), lr=0.1)))
    for one, *others in zip(*results, strict=True):
        assert all(torch.equal(one, other) for other in others)
    assert [record.message for record in caplog.records] == [
        "The network is not compiled, and computes as without training.compile (RuntimeError: No compiler here)."
    ]


def test_code_that_computes_something_else_is_not_used(monkeypatch, caplog):
    """As the one that torch 2.15 makes for bfloat16 on a processor: forwards right, backwards no numbers."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            return logits.clone()

        @staticmethod
        def backward(ctx, slope):
            return slope * torch.nan

    monkeypatch.setattr(torch, "compile", lambda module, **_: lambda inputs: Wrong.apply(module(inputs)))
    module = network_of().train()
    with caplog.at_level(logging.WARNING, logger="karat"):
        Network(module, compiled=Compiled(module))(torch.randn(6, 3, 8, 8)).mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    assert "compiled code has other gradients than the network" in caplog.text


def test_passes_that_are_not_trained_are_not_compiled(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr(torch, "compile", refuse)
    module = network_of()
    with evaluation_mode(module):
        logits = Network(module, compiled=Compiled(module))(torch.zeros(2, 3, 8, 8))
    assert logits.shape == (2, 4)
