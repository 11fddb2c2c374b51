"""MixMatch-KL: its loss in bare torch, and that the given labels do not count."""

import copy

import torch
from harness import CLASSES, Jitter, batch, learner, network
from torch import nn

from karat.algorithm.joint_batch import mixup_factors
from karat.methods.mixmatch_kl import MixMatchKlSettings, mixmatch_kl
from karat.methods.step import Progress

SETTINGS = MixMatchKlSettings(mixed_noisy_weight=5.0, consistency_weight=20.0)
PROGRESS = Progress(20, 100, 10)


def test_loss():
    """CE(8 mixed trusted) + ½·(5·CE(20 mixed noisy views) + 20·KL(weak ‖ strong)), half-way up the ramp.

    Pseudo labels are squared (τ = ½); mixed and un-mixed examples pass together and share BatchNorm statistics.
    """
    module, data = network(), batch(10, PROGRESS)
    copied = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    strong = Jitter().strong(data.noisy_inputs, generator)
    views = [data.noisy_inputs, strong]
    p, q = (copied(view).softmax(dim=1) for view in views)
    pseudo = ((p + q) / 2).square()
    pseudo = (pseudo / pseudo.sum(dim=1, keepdim=True)).detach()
    inputs = torch.cat([data.trusted_inputs, *views])
    targets = torch.cat([torch.eye(CLASSES)[data.trusted_labels].double(), pseudo, pseudo])
    order = torch.randperm(28, generator=generator)
    factor = mixup_factors(28, "beta", generator)[:, None]
    everything = torch.cat([factor * inputs + (1 - factor) * inputs[order], *views])
    logits, weak, changed = copied(everything).split([28, 10, 10])
    weak, changed = weak.softmax(dim=1), changed.softmax(dim=1)
    weak = weak.detach()  # the KL moves the strong view alone
    consistency = (weak * (weak / changed).log()).sum(dim=1).mean()
    targets = factor * targets + (1 - factor) * targets[order]
    expected = nn.functional.cross_entropy(logits[:8], targets[:8]) + 10 * consistency
    expected = expected + 2.5 * nn.functional.cross_entropy(logits[8:], targets[8:])

    result = mixmatch_kl(learner(module, Jitter()), data, SETTINGS, torch.Generator().manual_seed(0))
    torch.testing.assert_close(result.losses["total"], expected.detach())
    expected.backward()
    for ours, theirs in zip(module.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(result.logits.softmax(dim=1), p.detach())


def test_given_labels_do_not_count():
    data = batch(10, PROGRESS)
    modules = [network(), network()]
    for module, labels in zip(modules, (data.given_labels, (data.given_labels + 1) % CLASSES), strict=True):
        mixmatch_kl(
            learner(module, Jitter()), data._replace(given_labels=labels), SETTINGS, torch.Generator().manual_seed(0)
        )
    torch.testing.assert_close(modules[0].state_dict(), modules[1].state_dict(), rtol=0, atol=0)
