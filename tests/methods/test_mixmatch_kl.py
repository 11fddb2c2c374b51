"""MixMatch-KL: its loss in bare torch, and that the given labels do not count."""

import copy

import torch
from harness import CLASSES, Jitter, batch, learner, network
from torch import nn

from karat.algorithm.joint_batch import mixup_factors
from karat.algorithm.settings import AlgorithmSettings
from karat.methods.mixmatch_kl import mixmatch_kl

SETTINGS = AlgorithmSettings(mixed_noisy_weight=5.0, consistency_weight=20.0)


def test_loss():
    """CE(8 mixed trusted) + 5·CE(20 mixed noisy views) + 20·KL(weak ‖ strong), pseudo labels squared (τ = ½)."""
    module, data = network(), batch(10)
    copied = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    strong = Jitter().strong(data.noisy_inputs, generator)
    views = [data.noisy_inputs, strong]
    p, q = (copied(view).softmax(dim=1) for view in views)
    consistency = (p * (p / q).log()).sum(dim=1).mean()
    pseudo = ((p + q) / 2).square()
    pseudo = (pseudo / pseudo.sum(dim=1, keepdim=True)).detach()
    inputs = torch.cat([data.trusted_inputs, *views])
    targets = torch.cat([torch.eye(CLASSES)[data.trusted_labels].double(), pseudo, pseudo])
    order = torch.randperm(28, generator=generator)
    factor = mixup_factors(28, "beta", generator)[:, None]
    logits = copied(factor * inputs + (1 - factor) * inputs[order])
    targets = factor * targets + (1 - factor) * targets[order]
    expected = nn.functional.cross_entropy(logits[:8], targets[:8]) + 20 * consistency
    expected = expected + 5 * nn.functional.cross_entropy(logits[8:], targets[8:])

    result = mixmatch_kl(learner(module, Jitter()), data, SETTINGS, torch.Generator().manual_seed(0))
    torch.testing.assert_close(result.losses["total"], expected.detach())
    torch.testing.assert_close(result.logits.softmax(dim=1), p.detach())


def test_given_labels_do_not_count():
    data = batch(10)
    modules = [network(), network()]
    for module, labels in zip(modules, (data.given_labels, (data.given_labels + 1) % CLASSES), strict=True):
        mixmatch_kl(
            learner(module, Jitter()), data._replace(given_labels=labels), SETTINGS, torch.Generator().manual_seed(0)
        )
    torch.testing.assert_close(modules[0].state_dict(), modules[1].state_dict(), rtol=0, atol=0)
