"""MixMatch: its loss in bare torch, and that the given labels do not count."""

import copy

import pytest
import torch
from harness import CLASSES, batch, learner, network
from torch import nn

from karat.errors import UserError
from karat.methods.mixmatch import MixMatchSettings, mixmatch
from karat.methods.shared.mixup import beta_factors
from karat.methods.step import Progress

PROGRESS = Progress(20, 100, 10)


def test_loss():
    """Half of the ramp of 0.4 is done: CE(8 trusted) + ½·75·mean squared error (2 views of 10), guesses squared."""
    module, data = network(), batch(10, PROGRESS)
    copied = copy.deepcopy(module)
    guess = copied(data.noisy_inputs).softmax(dim=1).square()
    guess = (guess / guess.sum(dim=1, keepdim=True)).detach()
    inputs = torch.cat([data.trusted_inputs, data.noisy_inputs, data.noisy_inputs])
    targets = torch.cat([torch.eye(CLASSES)[data.trusted_labels].double(), guess, guess])
    generator = torch.Generator().manual_seed(0)
    factor = beta_factors(28, 0.75, generator)
    factor = torch.maximum(factor, 1 - factor)[:, None]
    order = torch.randperm(28, generator=generator)
    logits = copied(factor * inputs + (1 - factor) * inputs[order])
    targets = factor * targets + (1 - factor) * targets[order]
    expected = nn.functional.cross_entropy(logits[:8], targets[:8])
    expected = expected + 37.5 * nn.functional.mse_loss(logits[8:].softmax(dim=1), targets[8:])

    result = mixmatch(learner(module), data, MixMatchSettings(ramp=0.4), torch.Generator().manual_seed(0))
    torch.testing.assert_close(result.losses["loss"], expected.detach())
    torch.testing.assert_close(result.pseudo_labels, guess)


def test_given_labels_do_not_count():
    data = batch(10, PROGRESS)
    modules = [network(), network()]
    for module, labels in zip(modules, (data.given_labels, (data.given_labels + 1) % CLASSES), strict=True):
        changed = data._replace(given_labels=labels)
        mixmatch(learner(module), changed, MixMatchSettings(), torch.Generator().manual_seed(0))
    torch.testing.assert_close(modules[0].state_dict(), modules[1].state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "wrong", [{"views": 0}, {"temperature": 0}, {"mixup": -1}, {"guessed_weight": -1}, {"ramp": 3}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UserError, match=f"methods.mixmatch.{next(iter(wrong))} is"):
        MixMatchSettings(**wrong)
