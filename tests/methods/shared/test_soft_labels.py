"""Soft labels: sharpening at its limit, the two losses, the prior."""

import math

import pytest
import torch

from karat.methods.shared.soft_labels import labelled_and_guessed_losses, sharpened, uniform_prior_penalty


def test_low_temperatures_leave_the_likeliest_class():
    probabilities = torch.tensor([[0.3, 0.3, 0.4], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(sharpened(probabilities, 1e-3), torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]))


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
