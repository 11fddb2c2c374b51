"""Muon: what orthogonalizing does, which rates count for what, and that nothing but the parameters changes."""

import pytest
import torch
from torch import nn

from karat.algorithm.muon import Muon, orthogonalized


@pytest.mark.parametrize("shape", [(5, 30), (30, 5), (8, 8)])
def test_singular_values_come_near_one_and_directions_stay(shape):
    """The polynomial changes singular values alone: U and V stay, and 5 rounds bring all but tiny values near 1."""
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    found = orthogonalized(matrix, rounds=5)
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    inner = u.T @ found @ vt.T
    torch.testing.assert_close(inner, torch.diag(inner.diagonal()), rtol=0, atol=1e-12)
    assert (inner.diagonal() > 0.6).all()
    assert (inner.diagonal() < 1.3).all()


def test_the_length_of_a_gradient_does_not_matter_and_zero_stays_zero():
    gradient = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(orthogonalized(1000 * gradient), orthogonalized(gradient), rtol=1e-6, atol=0)
    assert orthogonalized(torch.zeros(4, 6)).abs().max() == 0


def test_other_groups_take_the_steps_of_sgd():
    torch.manual_seed(0)
    ours, theirs = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.zeros(3, 3))
    theirs.data.copy_(ours.data)
    muon = Muon([ours], lr=0.1, momentum=0.6, weight_decay=0.01, orthogonal=False, rate_factor=0.5)
    sgd = torch.optim.SGD([theirs], lr=0.05, momentum=0.6, weight_decay=0.01, nesterov=True)
    for _ in range(4):
        gradient = torch.randn(3, 3)
        for parameter, optimizer in ((ours, muon), (theirs, sgd)):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_a_step_leaves_the_gradient_alone():
    weight = nn.Parameter(torch.randn(4, 2, 3, 3))
    muon = Muon([weight], lr=0.1)
    gradient = torch.randn(4, 2, 3, 3)
    weight.grad = gradient.clone()
    for _ in range(2):
        muon.step()
        assert torch.equal(weight.grad, gradient)


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"momentum": 1.0}, {"weight_decay": -1.0}, {"rate_factor": -1.0}])
def test_refuses_numbers_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match="0 or more"):
        Muon([nn.Parameter(torch.zeros(2, 2))], **wrong)
