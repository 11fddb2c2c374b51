"""The ensemble: mean of the predictions, shared members."""

import copy

import torch
from harness import network
from torch import nn

from karat.methods.shared.ensemble import Ensemble


def test_predicts_the_mean_softmax():
    one, other = network().eval(), nn.Linear(6, 4).double()
    inputs = torch.randn(5, 6, dtype=torch.float64)
    expected = (one(inputs).softmax(dim=1) + other(inputs).softmax(dim=1)) / 2
    torch.testing.assert_close(Ensemble(one, other)(inputs).softmax(dim=1), expected)


def test_members_are_shared_and_a_deep_copy_is_not():
    one = nn.Linear(6, 4)
    ensemble = Ensemble(one, nn.Linear(6, 4))
    copied = copy.deepcopy(ensemble)
    nn.init.zeros_(one.weight)
    assert ensemble.members[0].weight.eq(0).all()
    assert not copied.members[0].weight.eq(0).any()
