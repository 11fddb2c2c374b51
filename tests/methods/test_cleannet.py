"""CleanNet-style weights: the formula by hand, the weighted step, memory."""

import copy
from dataclasses import replace

import pytest
import torch
from harness import COUNT, batch, learner, network, task
from torch import nn

from karat.errors import UserError
from karat.methods.cleannet import CleanNet, CleanNetSettings, prototype_weights
from karat.methods.step import Progress


def test_weights_by_hand():
    """Noisy features (4,0), (0,4), (4,4), (0,0): their mean is (2,2), so centred (2,−2), (−2,2), (2,2), (−2,−2).

    Trusted class 0: (5,2) and (3,2), mean (4,2), centred (2,0); class 1: (2,4), centred (0,2). With given labels
    0, 0, 1, 1 the cosines are √½, −√½, √½, −√½, and what is below 0 becomes 0.
    """
    features = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 4.0], [0.0, 0.0]])
    trusted = torch.tensor([[5.0, 2.0], [2.0, 4.0], [3.0, 2.0]])
    found = prototype_weights(features, torch.tensor([0, 0, 1, 1]), trusted, torch.tensor([0, 1, 0]))
    torch.testing.assert_close(found, torch.tensor([0.5**0.5, 0, 0.5**0.5, 0]))


def test_step_descends_the_weighted_mean():
    """After the similarities are set, the step is SGD on Σ w_i L_i / Σ w_i."""
    module = network()
    bare = copy.deepcopy(module)
    method, settings = CleanNet(task(), CleanNetSettings()), CleanNetSettings()
    method.similarity = torch.linspace(0, 1, COUNT)
    ours = learner(module)
    result = method.step(ours, batch(), settings, torch.Generator())

    weights = torch.linspace(0, 1, COUNT)[:10].double()
    losses = nn.functional.cross_entropy(bare(batch().noisy_inputs), batch().given_labels, reduction="none")
    ((weights * losses).sum() / weights.sum()).backward()
    learner(bare).optimizer.step()
    torch.testing.assert_close(module.state_dict(), bare.state_dict())
    torch.testing.assert_close(result.weights, weights / weights.sum())


def test_a_batch_without_similar_examples_changes_no_gradient():
    method = CleanNet(task(), CleanNetSettings())
    method.similarity = torch.zeros(COUNT)
    ours = learner(network())
    result = method.step(ours, batch(), CleanNetSettings(), torch.Generator())
    assert result.losses["loss"] == 0
    assert all((p.grad == 0).all() for p in ours.network.module.parameters())


def test_examples_of_another_class_lose_weight_after_the_warm_up():
    """Noisy inputs repeat the trusted ones; every second one has the label of another class."""
    data = task()
    labels = torch.arange(COUNT) % 4
    wrong = torch.arange(COUNT) >= COUNT // 2
    torch.manual_seed(0)
    centres = 5 * torch.eye(6, dtype=torch.float64)[:4]
    data = replace(
        data,
        given_labels=torch.where(wrong, (labels + 1) % 4, labels),
        trusted_inputs=lambda rows: centres[data.trusted_labels[rows]],
        noisy_inputs=lambda rows: centres[labels[rows]],
    )
    method, settings, ours = CleanNet(data, CleanNetSettings()), CleanNetSettings(warm_up=0.5), learner(network())
    method.begin_epoch(Progress(1, 4, 1), ours, settings, torch.Generator())
    assert (method.similarity == 1).all()
    method.begin_epoch(Progress(2, 4, 1), ours, settings, torch.Generator())
    torch.testing.assert_close(method.similarity[~wrong], torch.ones(COUNT // 2))
    assert (method.similarity[wrong] < 0.5).all()

    again = CleanNet(data, settings)
    again.load_state_dict(method.state_dict())
    assert torch.equal(again.similarity, method.similarity)


def test_a_warm_up_of_the_whole_run_is_refused():
    with pytest.raises(UserError, match=r"methods.cleannet.warm_up is 1"):
        CleanNetSettings(warm_up=1)
