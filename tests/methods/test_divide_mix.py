"""DivideMix: the Gaussian mixture, refined and guessed targets, empty parts, warm-up, what a checkpoint keeps."""

import copy
from dataclasses import replace

import pytest
import torch
from harness import CLASSES, batch, learner, network, task
from torch import nn

from karat.errors import UserError
from karat.methods.divide_mix import DivideMix, DivideMixSettings
from karat.methods.shared.gaussian_mixture import clean_probability
from karat.methods.shared.mixup import beta_factors
from karat.methods.step import Progress

AFTER = Progress(90, 100, 10)


def other_network():
    torch.manual_seed(4)
    return nn.Linear(6, CLASSES).double()


def make(settings):
    return DivideMix(replace(task(), new_learner=lambda: learner(other_network())), settings)


def test_low_losses_are_clean():
    """Two groups far apart: the posterior of the lower Gaussian is 1 for the one and 0 for the other."""
    losses = torch.cat([torch.linspace(0.0, 0.2, 30), torch.linspace(2.0, 2.5, 20)])
    expected = torch.cat([torch.ones(30), torch.zeros(20)])
    torch.testing.assert_close(clean_probability(losses), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("losses", [torch.ones(5), torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0, 0.0, 9.0])])
def test_mixture_of_few_losses_warns_nobody(losses):
    assert clean_probability(losses).isfinite().all()


def test_targets_and_loss_of_the_first_network():
    """Refine `w·y + (1−w)·p_own` where w > ½, else guess the mean of both networks; sharpen by squaring; mix; sum.

    The views are equal here, since nothing is augmented. w comes from the partner's losses; λ_u = 25, ramped up.
    """
    settings, data = DivideMixSettings(), batch(10, AFTER)
    method, own = make(settings), learner(network())
    method.partner_clean = torch.linspace(0, 1, 24).roll(-7)  # 0.30 ... 0.70 for the first ten
    one, other = copy.deepcopy(own.network.module), copy.deepcopy(method.partner.network.module)
    p, q = one(data.noisy_inputs).softmax(dim=1), other(data.noisy_inputs).softmax(dim=1)
    one(data.noisy_inputs)  # the second view moves the BatchNorm statistics, which training does not read
    w = method.partner_clean[:10, None].double()
    targets = torch.where(w > 0.5, w * torch.eye(CLASSES)[data.given_labels] + (1 - w) * p, (p + q) / 2) ** 2
    targets = (targets / targets.sum(dim=1, keepdim=True)).detach().repeat(2, 1)
    generator = torch.Generator().manual_seed(0)
    factor = beta_factors(20, 4.0, generator)
    factor = torch.maximum(factor, 1 - factor)[:, None]
    order = torch.randperm(20, generator=generator)
    inputs = data.noisy_inputs.repeat(2, 1)
    logits = one(factor * inputs + (1 - factor) * inputs[order])
    targets = factor * targets + (1 - factor) * targets[order]
    labelled = (w > 0.5).flatten().repeat(2)
    fit = nn.functional.cross_entropy(logits[labelled], targets[labelled])
    guessed = nn.functional.mse_loss(logits.softmax(dim=1)[~labelled], targets[~labelled])
    prior = -(logits.softmax(dim=1).mean(dim=0) * CLASSES).log().mean()

    result = method.step(own, data, settings, torch.Generator().manual_seed(0))
    torch.testing.assert_close(result.losses["loss"], (fit + 25 * guessed + prior).detach())
    torch.testing.assert_close(result.logits.exp(), ((p + q) / 2).detach())
    torch.testing.assert_close(result.label_trust, (w.flatten() + 1) / 2)  # the learner itself believes all labels


@pytest.mark.parametrize("clean", [0.0, 1.0])
def test_an_empty_part_is_no_obstacle(clean):
    settings = DivideMixSettings()
    method, own = make(settings), learner(network())
    method.clean = method.partner_clean = torch.full((24,), clean)
    result = method.step(own, batch(10, AFTER), settings, torch.Generator().manual_seed(0))
    assert all(value.isfinite() for value in result.losses.values())
    assert all(p.isfinite().all() for p in own.network.module.parameters())


def test_each_network_is_divided_by_its_own_losses():
    settings = DivideMixSettings(warm_up=0.2)
    method, own = make(settings), learner(network())
    method.begin_epoch(Progress(10, 100, 10), own, settings, torch.Generator())
    assert (method.clean == 1).all()
    method.begin_epoch(Progress(20, 100, 10), own, settings, torch.Generator())
    for column, module in ((method.clean, network()), (method.partner_clean, other_network())):
        with torch.no_grad():
            logits = module.eval()(task().noisy_inputs(torch.arange(24))).float()
        expected = clean_probability(nn.functional.cross_entropy(logits, task().given_labels, reduction="none"))
        torch.testing.assert_close(column, expected)


@pytest.mark.parametrize("penalty", [False, True])
def test_warm_up_trains_both_networks(penalty):
    """Cross-entropy, plus Σ p·log p (minus the entropy) if asked."""
    settings, data = DivideMixSettings(entropy_penalty=penalty), batch(10, Progress(0, 100, 10))
    method, own = make(settings), learner(network())
    logits = network()(data.noisy_inputs)
    expected = nn.functional.cross_entropy(logits, data.given_labels)
    if penalty:
        expected = expected - torch.distributions.Categorical(logits=logits).entropy().mean()
    result = method.step(own, data, settings, torch.Generator())
    torch.testing.assert_close(result.losses["loss"], expected.detach())
    assert not torch.equal(method.partner.network.module.weight, other_network().weight)


def test_state_survives():
    settings = DivideMixSettings()
    method, own = make(settings), learner(network())
    method.step(own, batch(10), settings, torch.Generator())
    method.clean, method.partner_clean = torch.rand(24), torch.rand(24)
    restored = make(settings)
    restored.load_state_dict(copy.deepcopy(method.state_dict()))
    twins = [copy.deepcopy(own), copy.deepcopy(own)]
    for one, twin in zip((method, restored), twins, strict=True):
        one.step(twin, batch(10, AFTER), settings, torch.Generator().manual_seed(1))
    for a, b in zip((method.partner, twins[0]), (restored.partner, twins[1]), strict=True):
        torch.testing.assert_close(a.network.module.state_dict(), b.network.module.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("wrong", [{"warm_up": -1}, {"threshold": 2}, {"temperature": 0}, {"guessed_weight": -1}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UserError, match=f"methods.divide_mix.{next(iter(wrong))} is"):
        DivideMixSettings(**wrong)
