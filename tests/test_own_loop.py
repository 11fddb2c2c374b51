"""The bare function: the numbers of Algorithm 1 from any module and optimizer, and nothing changed by asking."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from karat import data_coefficients
from karat.algorithm.settings import AlgorithmSettings
from karat.errors import UserError

CLASSES = 3


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES)).double()


def batch(count, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(CLASSES, (count,), generator=generator)


def warm(model, optimizer):
    """Take a real step, so that there are momentum buffers and moments to look ahead with."""
    inputs, labels = batch(8, seed=7)
    cross_entropy(model(inputs), labels).backward()
    optimizer.step()


def test_weights_are_the_double_backward_ones():
    """ω* = max(0, −∂L^p/∂ω) normalised, with L^p after Θ' = Θ − α·∇Σ ω_i ℓ_i by double back-propagation at ω = 1/B.

    Without dropout and with SGD, so that the reference is three lines.
    """
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    (x, y), (trusted_x, trusted_y) = batch(6, seed=2), batch(9, seed=3)
    parameters = dict(model.named_parameters())
    omega = torch.full((6,), 1 / 6, dtype=torch.float64, requires_grad=True)
    loss = (omega * cross_entropy(model(x), y, reduction="none")).sum()
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    ahead = {name: p - 0.5 * slope for (name, p), slope in zip(parameters.items(), slopes, strict=True)}
    trusted_loss = cross_entropy(torch.func.functional_call(model, ahead, (trusted_x,)), trusted_y)
    gains = -torch.autograd.grad(trusted_loss, omega)[0]
    expected = gains.clamp(min=0) / gains.clamp(min=0).sum()

    found = data_coefficients(model, optimizer, (x, y), (trusted_x, trusted_y))
    assert 0 < (expected > 0).sum() < 6
    torch.testing.assert_close(found.weights, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_changed(kind, training):
    model = network().train(training)
    optimizer = kind(model.parameters(), lr=0.01)
    warm(model, optimizer)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]))
    random = torch.get_rng_state()
    with torch.no_grad():  # as a validation hook would call it
        data_coefficients(model, optimizer, batch(6, seed=2), batch(6, seed=3), strong_views=[batch(6, seed=4)[0]])
    after = model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training is training


def test_own_pseudo_labels_decide_the_label_trust():
    """Pseudo labels that are the given ones leave nothing to choose: −(y − g)·ż is 0, and λ* is 0 everywhere.

    With pseudo labels against a fixed ż, example i trusts its label where the class score of y_i is above that of g_i.
    """
    model = network().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    noisy, trusted = batch(12, seed=2), batch(9, seed=3)
    same = nn.functional.one_hot(noisy[1], CLASSES).double()
    assert data_coefficients(model, optimizer, noisy, trusted, pseudo_labels=same).label_trust.sum() == 0

    other = (noisy[1] + 1) % CLASSES
    found = data_coefficients(model, optimizer, noisy, trusted, pseudo_labels=nn.functional.one_hot(other, CLASSES))
    given_score = found.class_scores.gather(1, noisy[1][:, None]).squeeze(1)
    other_score = found.class_scores.gather(1, other[:, None]).squeeze(1)
    assert torch.equal(found.label_trust > 0, given_score > other_score)
    assert 0 < found.label_trust.sum() < 12


def test_soft_labels_and_an_output_that_is_no_tensor():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, CLASSES).double()

        def forward(self, x):
            return {"logits": self.body(x)}

    model = Named()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (x, y), trusted = batch(6, seed=2), batch(9, seed=3)
    hard = data_coefficients(model, optimizer, (x, y), trusted, logits_of=lambda output: output["logits"])
    soft = nn.functional.one_hot(y, CLASSES).float()
    same = data_coefficients(model, optimizer, (x, soft), trusted, logits_of=lambda output: output["logits"])
    assert torch.equal(hard.weights, same.weights)
    assert hard.weights.sum() == pytest.approx(1)


def test_settings_are_those_of_the_algorithm():
    """With λ0 = 0 the pseudo label alone is weighed, so the given label does not matter."""
    model = network().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (x, y), trusted = batch(6, seed=2), batch(9, seed=3)
    settings = AlgorithmSettings(initial_label_trust=0.0)
    weights = [
        data_coefficients(model, optimizer, (x, labels), trusted, settings=settings).weights
        for labels in (y, (y + 1) % CLASSES)
    ]
    torch.testing.assert_close(weights[0], weights[1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"noisy": (torch.zeros(6, 4), torch.zeros(5).long())}, "noisy labels have shape .5,. for 6 inputs"),
        ({"noisy": (torch.zeros(6, 4), torch.full((6,), 3))}, "integers from 0 to 2"),
        ({"noisy": (torch.zeros(6, 4), torch.zeros(6))}, "are not class numbers"),
        ({"pseudo_labels": torch.ones(6, 4)}, "pseudo labels have shape"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)}, "holds no trainable parameter"),
        ({"model": nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1)))}, "logits of shape"),
    ],
)
def test_mistakes_are_sentences(change, sentence):
    model = change.get("model", nn.Linear(4, CLASSES))
    optimizer = change.get("optimizer") or torch.optim.SGD(model.parameters(), lr=0.1)
    noisy = change.get("noisy", (torch.zeros(6, 4), torch.zeros(6).long()))
    trusted = (torch.zeros(3, 4), torch.arange(3))
    with pytest.raises(UserError, match=sentence):
        data_coefficients(model, optimizer, noisy, trusted, pseudo_labels=change.get("pseudo_labels"))
