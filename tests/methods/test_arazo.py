"""M-DYR-H: mixup in the warm-up, the bootstrapped loss against its four terms, the probabilities, the memory."""

import copy
import math

import pytest
import torch
from harness import CLASSES, batch, learner, network, task
from torch import nn

from karat.errors import UserError
from karat.methods.arazo import Arazo, ArazoSettings, wrong_probability
from karat.methods.shared.mixup import beta_factors
from karat.methods.step import Progress

WARM, AFTER = Progress(0, 100, 10), Progress(90, 100, 10)


def draws(count, seed=0):
    """Return the factors and the permutation that `mixed_with_others` draws first from a generator."""
    generator = torch.Generator().manual_seed(seed)
    return beta_factors(count, 1.0, generator), torch.randperm(count, generator=generator)


def test_warm_up_is_mixup():
    """Loss β·CE(y_a) + (1−β)·CE(y_b) of β·x_a + (1−β)·x_b; no un-mixed prediction exists."""
    module, data = network(), batch(10, WARM)
    factor, other = draws(10)
    mixed = factor[:, None] * data.noisy_inputs + (1 - factor[:, None]) * data.noisy_inputs[other]
    logits = copy.deepcopy(module)(mixed)
    first, second = (
        nn.functional.cross_entropy(logits, y, reduction="none") for y in (data.given_labels, data.given_labels[other])
    )
    result = Arazo(task(), ArazoSettings()).step(
        learner(module), data, ArazoSettings(), torch.Generator().manual_seed(0)
    )
    torch.testing.assert_close(result.losses["loss"], (factor * first + (1 - factor) * second).mean().detach())
    assert result.logits is None


def test_bootstrapped_loss_has_four_terms_and_the_prior():
    """β[(1−w_a)CE(y_a) + w_a·CE(z_a)] + (1−β)[(1−w_b)CE(y_b) + w_b·CE(z_b)] + KL(uniform ‖ mean prediction)."""
    module, data = network(), batch(10, AFTER)
    method = Arazo(task(), ArazoSettings())
    method.wrong = torch.linspace(0, 1, 24)
    copied = copy.deepcopy(module)
    predicted = copied(data.noisy_inputs).argmax(dim=1)
    factor, other = draws(10)
    logits = copied(factor[:, None] * data.noisy_inputs + (1 - factor[:, None]) * data.noisy_inputs[other])
    wrong = method.wrong[:10].double()
    expected = torch.zeros(10, dtype=torch.float64)
    for share, of in ((factor, torch.arange(10)), (1 - factor, other)):
        given, guessed = (
            nn.functional.cross_entropy(logits, y[of], reduction="none") for y in (data.given_labels, predicted)
        )
        expected += share * ((1 - wrong[of]) * given + wrong[of] * guessed)
    mean = logits.softmax(dim=1).mean(dim=0)
    prior = sum(math.log((1 / CLASSES) / p) / CLASSES for p in mean.tolist())

    settings = ArazoSettings(prior_weight=2.0)
    result = method.step(learner(module), data, settings, torch.Generator().manual_seed(0))
    assert result.losses["loss"].item() == pytest.approx(expected.mean().item() + 2 * prior)
    torch.testing.assert_close(result.label_trust, 1 - wrong)


def test_high_losses_are_wrong_labels():
    """Losses around 0.3 (60) and 3 (40) are told apart; equal losses and extreme ones stay within the limits."""
    generator = torch.Generator().manual_seed(0)
    losses = torch.cat([torch.full((60,), 0.3), torch.full((40,), 3.0)]) * (
        0.6 + 0.8 * torch.rand(100, generator=generator)
    )
    wrong = wrong_probability(losses)
    assert (wrong[:60] < 0.5).all()
    assert wrong[60:].min() > wrong[:60].max()
    assert (wrong[60:] > 0.5).float().mean() > 0.9
    for other in (torch.ones(10), torch.tensor([0.0, 1e4])):
        assert ((wrong_probability(other) >= 1e-4) & (wrong_probability(other) <= 1 - 1e-4)).all()


def test_losses_are_modelled_after_the_warm_up_only():
    settings = ArazoSettings(warm_up=0.3)
    method, own = Arazo(task(), settings), learner(network())
    method.begin_epoch(Progress(20, 100, 10), own, settings, torch.Generator())
    assert (method.wrong == 0).all()
    method.begin_epoch(Progress(30, 100, 10), own, settings, torch.Generator())
    with torch.no_grad():
        logits = network().eval()(task().noisy_inputs(torch.arange(24))).float()
    expected = wrong_probability(nn.functional.cross_entropy(logits, task().given_labels, reduction="none"))
    torch.testing.assert_close(method.wrong, expected)


def test_state_survives():
    method = Arazo(task(), ArazoSettings())
    method.wrong = torch.rand(24)
    restored = Arazo(task(), ArazoSettings())
    restored.load_state_dict(copy.deepcopy(method.state_dict()))
    assert torch.equal(restored.wrong, method.wrong)


@pytest.mark.parametrize("wrong", [{"warm_up": 1.5}, {"mixup": 0}, {"prior_weight": -1}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UserError, match=f"methods.arazo.{next(iter(wrong))} is"):
        ArazoSettings(**wrong)
