"""The classifier of runs without training, and the heads' slope by formula."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from karat.methods.karat.classifier import SoftlyLabelled, fit_classifier
from karat.methods.karat.constants import CONSTANTS
from karat.methods.karat.folds import Labels, View, deal
from karat.methods.karat.heads import TINY, fit_heads, trusted_heads, with_one
from karat.noise_matrix import symmetric_transition


def test_hard_targets_give_logistic_regression():
    """With standardised columns of length L: s·‖W‖² + Σ loss is scikit-learn's with C = 1/(2s) on the scaled inputs."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 5, generator=generator) * torch.tensor([1.0, 2, 3, 4, 0]) + 7
    labels = (inputs[:, 0] + inputs[:, 1] > 14).long() + (inputs[:, 2] > 7).long()
    targets = torch.eye(3)[labels]
    constants = replace(CONSTANTS.classifier, iterations=500, chunk=70)
    parts = [
        SoftlyLabelled(inputs[:150].__getitem__, targets[:150]),
        SoftlyLabelled(inputs[150:].__getitem__, targets[150:]),
    ]
    weight, bias = fit_classifier(parts, True, constants)
    scaled = (inputs - inputs.mean(dim=0))[:, :4] / inputs[:, :4].std(dim=0, correction=0) * constants.length / 4**0.5
    reference = LogisticRegression(C=1 / (2 * constants.strength), max_iter=1000, tol=1e-8).fit(scaled, labels)
    found = (inputs @ weight.T + bias).softmax(dim=1).numpy()
    np.testing.assert_allclose(found, reference.predict_proba(scaled), atol=2e-3)
    assert not weight[:, 4].any()  # a constant column says nothing


def test_heads_end_where_the_objective_is_flat():
    """The slope by formula leads to a point where the slope by back-propagation is 0."""
    generator = torch.Generator().manual_seed(0)
    true = torch.randint(3, (300,), generator=generator)
    features = torch.eye(3)[true] + 0.7 * torch.randn(300, 3, generator=generator)
    given = torch.where(torch.rand(300, generator=generator) < 0.3, (true + 1) % 3, true)
    view, labels = View(features[30:], features[:30]), Labels(given[30:], true[:30], 3)
    constants = replace(CONSTANTS.verdict, strengths=(1.0, 10.0), iterations=300, chunk=100)
    folds = deal(labels, generator, constants)
    prior, shares = trusted_heads(view.trusted, labels, folds), torch.tensor([0.2, 0.3, 0.5])
    transition = symmetric_transition(3, 0.3).float()
    start = prior[:, :, None].repeat(1, 1, 2, 1)
    heads = fit_heads(start, view, prior, labels, folds, transition, shares, constants).requires_grad_()
    numbers = torch.arange(folds.parts)
    p = (with_one(view.noisy) @ heads.flatten(1)).unflatten(1, heads.shape[1:]).softmax(dim=-1)
    likelihood = (p * transition.T[labels.given][:, None, None]).sum(dim=-1).clamp(min=TINY).log()
    logits = (with_one(view.trusted) @ heads.flatten(1)).unflatten(1, heads.shape[1:])
    log_p = (logits + (labels.trusted_shares / shares).log()).log_softmax(dim=-1)
    right = log_p[torch.arange(30), :, :, labels.trusted]
    moved = (heads - prior[:, :, None])[:-1].square().sum(dim=(0, 1, 3))
    loss = (moved * torch.tensor(constants.strengths)).sum()
    loss = loss - (likelihood * (folds.noisy[:, None] != numbers)[:, :, None]).sum()
    loss = loss - (right * (folds.trusted[:, None] != numbers)[:, :, None]).sum()
    loss.backward()
    assert heads.grad.abs().max() < 0.02  # at the start it is above 10
