"""Gold loss correction: the matrix from the trusted examples, then both sets together."""

import pytest
import torch
from harness import CLASSES, batch, learner, network, stepped, task
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.glc import GlcSettings, GoldLossCorrection
from karat.methods.step import Progress

SETTINGS = GlcSettings()


def in_phase(phase):
    return batch(progress=Progress(0, 1, 1, phase))


def test_first_phase_is_plain_training():
    module, data = network(), in_phase(0)
    expected = stepped(module, lambda bare: cross_entropy(bare(data.noisy_inputs), data.given_labels))
    GoldLossCorrection(task(), SETTINGS).step(learner(module), data, SETTINGS, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "weight"), [(GlcSettings(trusted_weight=None), 0.25), (GlcSettings(trusted_weight=0.4), 0.4)]
)
def test_second_phase_descends_the_loss_of_both_sets(settings, weight):
    """8 trusted and 24 noisy examples: the trusted ones are 8/32 = 1/4 of all."""
    module, data, everything = network(), in_phase(1), task()
    method = GoldLossCorrection(everything, settings)
    assert method.begin_phase(1, learner(module), settings, torch.Generator()) is None

    module.eval()
    predictions = module(data.trusted_inputs).softmax(dim=1).detach()
    module.train()
    matrix = torch.stack([predictions[everything.trusted_labels == c].mean(dim=0) for c in range(CLASSES)])
    torch.testing.assert_close(method.transition, matrix.float())

    def loss(bare):
        probabilities = bare(torch.cat([data.noisy_inputs, data.trusted_inputs])).softmax(dim=1)
        posterior = probabilities[:10] @ method.transition.double()
        noisy = -posterior[torch.arange(10), data.given_labels].log().mean()
        trusted = -probabilities[10:][torch.arange(8), data.trusted_labels].log().mean()
        return (1 - weight) * noisy + weight * trusted

    expected = stepped(module, loss)
    result = method.step(learner(module), data, settings, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected)
    assert result.logits.shape == (10, CLASSES)


def test_matrix_survives_a_checkpoint():
    method, resumed = (GoldLossCorrection(task(), SETTINGS) for _ in range(2))
    method.begin_phase(1, learner(network()), SETTINGS, torch.Generator())
    assert not torch.equal(method.transition, resumed.transition)
    resumed.load_state_dict(method.state_dict())
    assert torch.equal(method.transition, resumed.transition)


@pytest.mark.parametrize("wrong", [{"estimation_share": 1.0}, {"trusted_weight": 1.5}])
def test_illegal_settings_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        GlcSettings(**wrong)
