"""Passes that are computed again on the way back: the same numbers, with less in memory."""

import pytest
import torch
from torch import nn

from karat.algorithm.coefficients import meta_gradient
from karat.algorithm.network import Network
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import one_hot
from karat.models import build_model


def found(module, pieces):
    """Return coefficients, gradients, statistics and the random state after two views, a meta step and a backward."""
    torch.manual_seed(0)
    network, optimizer = Network(module, pieces=pieces), torch.optim.SGD(module.parameters(), lr=0.1)
    inputs, trusted = torch.randn(12, 3, 8, 8).double(), torch.randn(6, 3, 8, 8).double()
    given, verified = (one_hot(torch.arange(count) % 4, 4, like=inputs) for count in (12, 6))
    views = [network.forward_pass(view) for view in (inputs, inputs.flip(3))]
    coefficients = meta_gradient(network, optimizer, views, given, trusted, verified, AlgorithmSettings())
    (views[0].logits.square().mean() + views[1].logits.exp().mean()).backward()
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return [*coefficients, *gradients, *module.buffers(), torch.get_rng_state()]


def without_statistics():
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.GroupNorm(1, 5), nn.GELU(), nn.Flatten(), nn.Linear(180, 4))


def with_statistics_and_dropout():
    return nn.Sequential(build_model("fast-2", (3, 8, 8), 4), nn.Dropout(0.2))


@pytest.mark.parametrize(
    ("network_of", "pieces"), [(with_statistics_and_dropout, 1), (without_statistics, 1), (without_statistics, 5)]
)
def test_pieces_are_exact(network_of, pieces):
    """As a whole for every network; cut into pieces where no layer looks at several examples."""
    results = []
    for cut in (None, pieces):
        torch.manual_seed(1)
        results.append(found(network_of().double().train(), cut))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_a_pass_keeps_nothing_for_the_way_back():
    """Counted by what autograd saves: the inputs instead of every layer's numbers."""
    kept = {}
    for pieces in (None, 2):
        saved = []
        network = Network(without_statistics(), pieces=pieces)
        inputs = torch.randn(8, 3, 8, 8)
        with torch.autograd.graph.saved_tensors_hooks(lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t):
            network(inputs)
        kept[pieces] = sum(saved)
    assert kept[2] == inputs.numel() < kept[None]
