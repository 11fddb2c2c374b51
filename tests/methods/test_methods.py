"""Supervised against bare torch, L2R against double back-propagation, IEG as a whole, and the ablations."""

import copy
from dataclasses import fields, replace

import pytest
import torch
from harness import CLASSES, Jitter, batch, learner, network
from torch import nn

from karat.algorithm.settings import AlgorithmSettings
from karat.errors import UserError
from karat.methods import make_method, settings_of
from karat.methods.ieg import ieg
from karat.methods.l2r import L2rSettings, l2r
from karat.methods.mixmatch_kl import MixMatchKlSettings
from karat.methods.settings import MethodSettings
from karat.methods.supervised import supervised
from karat.settings.presets import PRESETS

STEPS = {"supervised": supervised, "l2r": l2r, "ieg": ieg}


def test_supervised_equals_a_bare_torch_loop():
    module = network()
    bare = copy.deepcopy(module)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    ours = learner(module)
    for _ in range(5):
        supervised(ours, batch(), None, torch.Generator())
        optimizer.zero_grad()
        nn.functional.cross_entropy(bare(batch().noisy_inputs), batch().given_labels).backward()
        optimizer.step()
    torch.testing.assert_close(module.state_dict(), bare.state_dict(), rtol=0, atol=0)


def test_l2r_weights_equal_double_backward():
    """Ren et al.: ω = max(0, −∂L^p/∂ω) at ω = 0 after a plain gradient step, divided by its sum."""
    module, data = network(), batch()
    reference = copy.deepcopy(module)
    weights = torch.zeros(10, dtype=torch.float64, requires_grad=True)
    losses = nn.functional.cross_entropy(reference(data.noisy_inputs), data.given_labels, reduction="none")
    names, parameters = zip(*reference.named_parameters(), strict=True)
    gradients = torch.autograd.grad((weights * losses).sum(), parameters, create_graph=True)
    ahead = {n: p - 0.1 * g for n, p, g in zip(names, parameters, gradients, strict=True)}
    logits = torch.func.functional_call(reference, ahead, (data.trusted_inputs,))
    (slope,) = torch.autograd.grad(nn.functional.cross_entropy(logits, data.trusted_labels), weights)
    expected = (-slope).clamp(min=0)

    result = l2r(learner(module), data, L2rSettings(), torch.Generator())
    torch.testing.assert_close(result.weights, expected / expected.sum(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", STEPS)
def test_steps_are_reproducible_and_learn(method, preset):
    """Two learners with the same seeds take the same steps; after some, the loss that they descend has fallen.

    L2R's loss is weighted anew in every step, so it need not fall on random labels.
    """
    found = []
    for _ in range(2):
        module, settings = network(), settings_of(method, PRESETS[preset].methods)
        generator = torch.Generator().manual_seed(0)
        ours = learner(module, Jitter())
        first = last = STEPS[method](ours, batch(), settings, generator)
        for _ in range(30):
            last = STEPS[method](ours, batch(), settings, generator)
        found.append(module.state_dict())
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    if method != "l2r":
        total = next(iter(last.losses))
        assert last.losses[total] < first.losses[total]


def test_ieg_reports_coefficients_of_the_batch():
    result = ieg(learner(network(), Jitter()), batch(), AlgorithmSettings(), torch.Generator())
    assert (result.weights >= 0).all()
    torch.testing.assert_close(result.weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert set(result.label_trust.tolist()) <= {0.0, 1.0}
    assert result.class_scores.shape == result.pseudo_labels.shape == (10, CLASSES)


def test_class_scores_agree_with_label_trust():
    """λ = 1 where −(y − g)·ż > 0: where the score of the given class beats the pseudo label's mean score."""
    result = ieg(learner(network(), Jitter()), batch(), AlgorithmSettings(), torch.Generator())
    given_score = result.class_scores.gather(1, batch().given_labels[:, None]).squeeze(1)
    pseudo_score = (result.class_scores * result.pseudo_labels).sum(dim=1)
    assert torch.equal(result.label_trust == 1, given_score > pseudo_score)


def test_without_re_labelling_and_mixing_only_the_weights_are_left():
    """Ablation M-1 is L2R: with λ0 = 1 and no other term, the total is `Σ ω*_i L(y_i, z_i)`."""
    bare = AlgorithmSettings(
        initial_label_trust=1.0,
        relabelled_weight=0.0,
        mixed_trusted_weight=0.0,
        mixed_noisy_weight=0.0,
        consistency_weight=0.0,
    )
    module = network()
    data = batch()
    logits = copy.deepcopy(module)(data.noisy_inputs)
    result = ieg(learner(module, Jitter()), data, bare, torch.Generator())
    losses = nn.functional.cross_entropy(logits, data.given_labels, reduction="none")
    torch.testing.assert_close(result.losses["total"], (result.weights * losses).sum().detach())


def test_every_term_of_the_total_loss_has_its_weight():
    settings = AlgorithmSettings(relabelled_weight=0.3, mixed_trusted_weight=0.7, mixup="none")
    losses = ieg(learner(network(), Jitter()), batch(), settings, torch.Generator()).losses
    expected = losses["weighted"] + 0.3 * losses["relabelled"] + 0.7 * losses["mixed_trusted"]
    torch.testing.assert_close(losses["total"], expected + losses["mixed_noisy"] + losses["consistency"])


def test_without_mixup_the_trusted_part_is_plain_cross_entropy():
    module, data = network(), batch()
    joined = torch.cat([data.trusted_inputs, data.noisy_inputs, data.noisy_inputs])  # BatchNorm sees the whole
    logits = copy.deepcopy(module)(joined)[: len(data.trusted_labels)]
    settings = replace(AlgorithmSettings(), mixup="none")
    result = ieg(learner(module), data, settings, torch.Generator())
    expected = nn.functional.cross_entropy(logits, data.trusted_labels).detach()
    torch.testing.assert_close(result.losses["mixed_trusted"], expected)


def test_unknown_method_lists_the_legal_ones():
    with pytest.raises(UserError, match=r"'iegg'. Did you mean 'ieg'\? Choose one of: arazo, .*, trusted_only"):
        make_method("iegg", None, None)


def test_a_method_gets_its_own_settings():
    methods = MethodSettings()
    assert settings_of("gce", methods) is methods.gce
    assert settings_of("supervised", methods) is None
    with pytest.raises(UserError, match=r"Unknown method 'gcee'\. Did you mean 'gce'"):
        settings_of("gcee", methods)


def test_the_methods_that_share_choices_of_algorithm_1_call_them_alike():
    """The presets take them over by name, and old names are said to be in all of their new places."""
    ieg_fields = {field.name: field.default for field in fields(AlgorithmSettings)}
    for own in (L2rSettings, MixMatchKlSettings):
        assert {field.name: field.default for field in fields(own)}.items() <= ieg_fields.items()
