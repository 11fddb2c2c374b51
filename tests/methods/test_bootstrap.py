"""Bootstrapping against other forms of its two losses."""

import pytest
import torch
from harness import batch, learner, network, stepped
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.bootstrap import BootstrapSettings, bootstrap_hard, bootstrap_soft
from karat.methods.settings import MethodSettings


def test_soft_is_cross_entropy_with_an_entropy_penalty():
    """−Σ (β y + (1−β) p) log p = β CE(y, p) + (1−β) H(p), gradient through both factors of the entropy H."""
    module, data = network(), batch()

    def loss(bare):
        logits = bare(data.noisy_inputs)
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        return 0.6 * cross_entropy(logits, data.given_labels) + 0.4 * entropy

    expected = stepped(module, loss)
    bootstrap_soft(learner(module), data, BootstrapSettings(0.6), torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected)


def test_hard_is_a_blend_of_two_cross_entropies():
    """The loss is linear in the target: β CE(y, p) + (1−β) CE(argmax p, p)."""
    module, data = network(), batch()

    def loss(bare):
        logits = bare(data.noisy_inputs)
        return 0.6 * cross_entropy(logits, data.given_labels) + 0.4 * cross_entropy(logits, logits.argmax(dim=1))

    expected = stepped(module, loss)
    bootstrap_hard(learner(module), data, BootstrapSettings(0.6), torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected)


def test_each_variant_has_the_default_of_its_paper():
    settings = MethodSettings()
    assert (settings.bootstrap_soft.label_trust, settings.bootstrap_hard.label_trust) == (0.95, 0.8)


@pytest.mark.parametrize("label_trust", [-0.1, 1.1, float("nan")])
def test_illegal_label_trust_is_refused(label_trust):
    with pytest.raises(UserError, match="label_trust"):
        BootstrapSettings(label_trust)
