"""Generalised cross-entropy against its formula and its two limits."""

import pytest
import torch
from harness import batch, learner, network, stepped
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.gce import GceSettings, gce


def given_probability(module, data):
    return module(data.noisy_inputs).softmax(dim=1)[torch.arange(len(data.given_labels)), data.given_labels]


def test_step_descends_the_formula():
    module, data = network(), batch()
    expected = stepped(module, lambda bare: ((1 - given_probability(bare, data) ** 0.7) / 0.7).mean())
    gce(learner(module), data, GceSettings(0.7), torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected)


@pytest.mark.parametrize(
    ("exponent", "limit"),
    [
        (1e-9, lambda bare, data: cross_entropy(bare(data.noisy_inputs), data.given_labels)),
        (1.0, lambda bare, data: (1 - given_probability(bare, data)).mean()),
    ],
)
def test_limits(exponent, limit):
    """(1 − p^q)/q = (1 − exp(q log p))/q tends to −log p as q tends to 0, and is 1 − p at q = 1."""
    module, data = network(), batch()
    expected = limit(module, data).detach()
    result = gce(learner(module), data, GceSettings(exponent), torch.Generator())
    torch.testing.assert_close(result.losses["loss"], expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("exponent", [0.0, -1.0, 1.1, float("nan")])
def test_illegal_exponents_are_refused(exponent):
    with pytest.raises(UserError, match=r"methods\.gce\.exponent"):
        GceSettings(exponent)
