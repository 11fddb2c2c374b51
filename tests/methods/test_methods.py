"""Each method's step: parity with bare torch, L2R against double back-propagation, IEG as a whole."""

import copy

import pytest
import torch
from torch import nn

from karat.algorithm.network import Network
from karat.algorithm.settings import ALGORITHM_PRESETS, AlgorithmSettings
from karat.errors import UserError
from karat.methods import METHODS, method_named
from karat.methods.step import Batch, Learner

CLASSES = 4


class Unchanged:
    """No augmentation."""

    def weak(self, inputs, generator):
        return inputs

    def strong(self, inputs, generator):
        return inputs


class Jitter(Unchanged):
    def strong(self, inputs, generator):
        return inputs + 0.1 * torch.randn(inputs.shape, generator=generator, dtype=inputs.dtype)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)).double()


def learner(module, augmentation=None):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    return Learner(Network(module), optimizer, augmentation or Unchanged(), CLASSES)


def batch(count=10):
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(2, count, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES, (2, count), generator=generator)
    return Batch(inputs[0], labels[0], inputs[1], labels[1])


def test_supervised_equals_a_bare_torch_loop():
    module = network()
    bare = copy.deepcopy(module)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    ours = learner(module)
    for _ in range(5):
        METHODS["supervised"](ours, batch(), AlgorithmSettings(), torch.Generator())
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

    result = METHODS["l2r"](learner(module), data, AlgorithmSettings(), torch.Generator())
    torch.testing.assert_close(result.weights, expected / expected.sum(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("preset", ALGORITHM_PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_steps_are_reproducible_and_learn(method, preset):
    """Two learners with the same seeds take the same steps; plain training data are fitted after some."""
    found = []
    for _ in range(2):
        module = network()
        generator = torch.Generator().manual_seed(0)
        ours = learner(module, Jitter())
        first = last = METHODS[method](ours, batch(), ALGORITHM_PRESETS[preset], generator)
        for _ in range(30):
            last = METHODS[method](ours, batch(), ALGORITHM_PRESETS[preset], generator)
        found.append(module.state_dict())
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    total = next(iter(last.losses))
    assert last.losses[total] < first.losses[total]


def test_ieg_reports_coefficients_of_the_batch():
    result = METHODS["ieg"](learner(network(), Jitter()), batch(), AlgorithmSettings(), torch.Generator())
    assert (result.weights >= 0).all()
    torch.testing.assert_close(result.weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert set(result.label_trust.tolist()) <= {0.0, 1.0}
    assert result.class_scores.shape == result.pseudo_labels.shape == (10, CLASSES)


def test_class_scores_agree_with_label_trust():
    """λ = 1 where −(y − g)·ż > 0: where the score of the given class beats the pseudo label's mean score."""
    result = METHODS["ieg"](learner(network(), Jitter()), batch(), AlgorithmSettings(), torch.Generator())
    given_score = result.class_scores.gather(1, batch().given_labels[:, None]).squeeze(1)
    pseudo_score = (result.class_scores * result.pseudo_labels).sum(dim=1)
    assert torch.equal(result.label_trust == 1, given_score > pseudo_score)


def test_unknown_method_lists_the_legal_ones():
    with pytest.raises(UserError, match=r"'iegg'. Did you mean 'ieg'\? Choose one of: ieg, l2r, supervised"):
        method_named("iegg")
