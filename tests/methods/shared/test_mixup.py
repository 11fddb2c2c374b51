"""What the mixing methods share: the factors' distribution, targets that follow inputs, the two losses, the prior."""

import math

import pytest
import torch

from karat.methods.shared.mixup import (
    beta_factors,
    labelled_and_guessed_losses,
    mixed_with_others,
    sharpened,
    uniform_prior_penalty,
    warming_up,
)
from karat.methods.step import Progress


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


def test_losses_of_both_parts():
    """Uniform predictions of 2 classes: cross-entropy log 2; squared error to (1, 0): (1/4 + 1/4)/2 = 1/4."""
    logits, targets = torch.zeros(3, 2), torch.tensor([[1.0, 0.0]]).repeat(3, 1)
    fit, guessed = labelled_and_guessed_losses(logits, targets, torch.tensor([True, False, False]))
    assert fit.item() == pytest.approx(math.log(2))
    assert guessed.item() == pytest.approx(0.25)


@pytest.mark.parametrize("labelled", [True, False])
def test_an_empty_part_has_no_loss(labelled):
    logits, targets = torch.zeros(3, 2, requires_grad=True), torch.tensor([[1.0, 0.0]]).repeat(3, 1)
    losses = labelled_and_guessed_losses(logits, targets, torch.full((3,), labelled))
    assert losses[1 if labelled else 0].item() == 0
    sum(losses).backward()
    assert logits.grad.isfinite().all()


def test_prior_is_the_divergence_from_equal_shares():
    """Mean prediction (3/4, 1/4): KL((1/2, 1/2) ‖ ·) = ½·log(½/¾) + ½·log(½/¼) = ½·log(4/3)."""
    probabilities = torch.tensor([[1 - 1e-9, 1e-9], [0.5, 0.5]], dtype=torch.float64)
    assert uniform_prior_penalty(probabilities.log()).item() == pytest.approx(0.5 * math.log(4 / 3), abs=1e-6)


def test_warm_up_ends_with_an_epoch():
    """With 3 epochs of 4 steps a warm-up of 0.4·12 = 4.8 steps holds until the epoch that begins at step 8."""
    found = [warming_up(Progress(step, total_steps=12, steps_per_epoch=4), 0.4) for step in range(12)]
    assert found == [True] * 8 + [False] * 4


def test_low_temperatures_leave_the_likeliest_class():
    probabilities = torch.tensor([[0.3, 0.3, 0.4], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(sharpened(probabilities, 1e-3), torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]))
