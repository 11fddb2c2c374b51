"""Mixup: the factors' distribution, and targets that follow inputs."""

import math

import pytest
import torch

from karat.methods.shared.mixup import beta_factors, mixed_with_others


@pytest.mark.parametrize("concentration", [0.75, 4.0, 32.0])
def test_factors_have_the_moments_of_the_beta_distribution(concentration):
    """Beta(a, a) has mean 1/2 and variance 1/(4(2a+1)); 20,000 draws know the mean to 1/(2·√20000) at worst."""
    draws = beta_factors(20_000, concentration, torch.Generator().manual_seed(1))
    assert abs(draws.mean().item() - 0.5) < 4 * 0.5 / math.sqrt(20_000)
    assert draws.var().item() == pytest.approx(1 / (4 * (2 * concentration + 1)), rel=0.05)


def test_factors_come_from_the_generator():
    first, again, other = (beta_factors(4, 2.0, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("keep_first", [False, True])
def test_targets_are_mixed_as_the_inputs(keep_first):
    """Inputs that equal their targets must still do so; with max(β, 1−β) half of an example is its own at least."""
    identity = torch.eye(50, dtype=torch.float64)
    inputs, targets = mixed_with_others(identity, identity, 0.75, torch.Generator().manual_seed(0), keep_first)
    assert torch.equal(inputs, targets)
    torch.testing.assert_close(targets.sum(dim=1), torch.ones(50, dtype=torch.float64))
    assert (inputs.diagonal() >= 0.5 - 1e-12).all() == keep_first
