"""Co-teaching: whose examples train whom, the forgotten share, the estimated noise rate, what a checkpoint keeps."""

import copy
from dataclasses import replace

import pytest
import torch
from harness import CLASSES, batch, learner, network, task
from torch import nn

from karat.errors import UserError
from karat.methods.co_teaching import CoTeaching, CoTeachingSettings
from karat.methods.shared.agreement import noise_rate_from_accuracy
from karat.methods.step import Progress


def other_network():
    torch.manual_seed(4)
    return nn.Linear(6, CLASSES).double()


def make(settings):
    return CoTeaching(replace(task(), new_learner=lambda: learner(other_network())), settings)


def test_each_network_learns_what_the_other_finds_easy():
    """τ = 0.4 after the ramp keeps 6 of 10: train copies in bare torch on the other's six smallest losses."""
    data = batch(10, Progress(50, 100, 10))
    settings = CoTeachingSettings(forget_rate=0.4)
    method, own = make(settings), learner(network())
    copies = [copy.deepcopy(own.network.module), copy.deepcopy(method.partner.network.module)]
    losses = [nn.functional.cross_entropy(m(data.noisy_inputs), data.given_labels, reduction="none") for m in copies]
    easy = [loss.topk(6, largest=False).indices for loss in losses]
    for module, loss, chosen in zip(copies, losses, reversed(easy), strict=True):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        loss[chosen].mean().backward()
        optimizer.step()

    result = method.step(own, data, settings, torch.Generator())
    torch.testing.assert_close(own.network.module.state_dict(), copies[0].state_dict())
    torch.testing.assert_close(method.partner.network.module.state_dict(), copies[1].state_dict())
    counts = torch.zeros(10, dtype=torch.float64)
    for chosen in easy:
        counts[chosen] += 1
    torch.testing.assert_close(result.weights, counts / 12)
    assert set(easy[0].tolist()) != set(easy[1].tolist())  # else the test could not tell who taught whom


@pytest.mark.parametrize(("step", "kept"), [(0, 10), (5, 8), (10, 6), (90, 6)])
def test_the_kept_share_falls_linearly(step, kept):
    """R = 1 − 0.4·min(t/T_k, 1) with T_k = 10 steps."""
    settings = CoTeachingSettings(forget_rate=0.4, ramp=0.1)
    method = CoTeaching(task(), settings)  # both networks equal, so both choose the same examples
    result = method.step(learner(network()), batch(10, Progress(step, 100, 10)), settings, torch.Generator())
    assert (result.weights > 0).sum() == kept


class Knows(nn.Module):
    """Predict the class that the first input feature names, or always class 0."""

    def __init__(self, constant=False):
        super().__init__()
        self.constant = constant
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, inputs):
        classes = inputs[:, 0].long() * (0 if self.constant else 1)
        return 10.0 * nn.functional.one_hot(classes, CLASSES) + 0 * self.unused


@pytest.mark.parametrize(("constant", "rate"), [(False, 0.25), (True, 0.0)])
def test_noise_rate_is_estimated_after_the_warm_up(constant, rate):
    """A perfect model disagrees with 6 wrong labels of 24 alone; one at chance level on trusted data knows nothing."""
    truth = torch.arange(24) % CLASSES
    given = torch.where(torch.arange(24) < 6, (truth + 1) % CLASSES, truth)
    known = replace(
        task(),
        given_labels=given,
        noisy_inputs=lambda rows: truth[rows, None].double(),
        trusted_inputs=lambda rows: (rows % CLASSES)[:, None].double(),
        new_learner=lambda: learner(Knows(constant)),
    )
    settings = CoTeachingSettings(warm_up=0.2, ramp=0.1)
    method = CoTeaching(known, settings)
    for step, expected in ((0, None), (10, None), (20, rate)):
        method.begin_epoch(Progress(step, 100, 10), learner(Knows(constant)), settings, torch.Generator())
        assert method.noise_rate == (None if expected is None else pytest.approx(expected))


def test_estimate_corrects_for_wrong_predictions():
    """Right with 0.5, 10 classes, ε = 0.72: a = 0.5·0.28 + 0.5·0.72/9 = 0.18; agreement alone would say 0.82."""
    assert noise_rate_from_accuracy(0.18, 0.5, 10) == pytest.approx(0.72)
    assert noise_rate_from_accuracy(0.9, 0.8, 10) == 0
    assert noise_rate_from_accuracy(0.0, 0.8, 10) == 0.9


def test_state_survives():
    settings = CoTeachingSettings()
    method, own = make(settings), learner(network())
    method.step(own, batch(), settings, torch.Generator())
    method.noise_rate = 0.3
    state = copy.deepcopy(method.state_dict())
    restored = make(settings)
    restored.load_state_dict(state)
    assert restored.noise_rate == 0.3
    assert restored.partners == (restored.partner,)
    twins = [copy.deepcopy(own), copy.deepcopy(own)]
    for one, twin in zip((method, restored), twins, strict=True):
        one.step(twin, batch(10, Progress(90, 100, 10)), settings, torch.Generator())
    for a, b in zip((method.partner, twins[0]), (restored.partner, twins[1]), strict=True):
        torch.testing.assert_close(a.network.module.state_dict(), b.network.module.state_dict(), rtol=0, atol=0)


def test_deployed_shares_both_networks():
    method, own = make(CoTeachingSettings()), network()
    parameters = list(method.deployed(own).parameters())
    expected = [*own.parameters(), *method.partner.network.module.parameters()]
    assert all(a is b for a, b in zip(parameters, expected, strict=True))


@pytest.mark.parametrize("wrong", [{"forget_rate": 1.0}, {"ramp": -0.1}, {"warm_up": 2}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UserError, match=f"methods.co_teaching.{next(iter(wrong))} is"):
        CoTeachingSettings(**wrong)
