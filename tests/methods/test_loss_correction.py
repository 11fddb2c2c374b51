"""Forward correction: a plain phase, the matrix from its network, a corrected phase."""

import pytest
import torch
from harness import CLASSES, batch, learner, network, stepped, task
from torch.nn.functional import cross_entropy

from karat.errors import UserError
from karat.methods.loss_correction import LossCorrection, LossCorrectionSettings
from karat.methods.step import Progress

SETTINGS = LossCorrectionSettings(anchor_rank=0.3)


def in_phase(phase):
    return batch(progress=Progress(0, 1, 1, phase))


def test_first_phase_is_plain_training():
    module, data = network(), in_phase(0)
    expected = stepped(module, lambda bare: cross_entropy(bare(data.noisy_inputs), data.given_labels))
    LossCorrection(task(), SETTINGS).step(learner(module), data, SETTINGS, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected, rtol=0, atol=0)


def test_second_phase_descends_the_corrected_loss():
    """24 examples of 4 classes: the anchor has place ⌊0.3·24/4⌋ = 1, the second surest of its class."""
    module, data, everything = network(), in_phase(1), task()
    method = LossCorrection(everything, SETTINGS)
    assert method.begin_phase(1, learner(module), SETTINGS, torch.Generator()) is None

    module.eval()
    predictions = module(everything.noisy_inputs(torch.arange(24))).softmax(dim=1).detach()
    module.train()
    matrix = torch.stack([predictions[predictions[:, c].topk(2).indices[1]] for c in range(CLASSES)])
    torch.testing.assert_close(method.transition, matrix.float())

    def loss(bare):
        posterior = bare(data.noisy_inputs).softmax(dim=1) @ method.transition.double()
        return -posterior[torch.arange(10), data.given_labels].log().mean()

    expected = stepped(module, loss)
    method.step(learner(module), data, SETTINGS, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected)


def test_matrix_survives_a_checkpoint():
    method, resumed = (LossCorrection(task(), SETTINGS) for _ in range(2))
    method.begin_phase(1, learner(network()), SETTINGS, torch.Generator())
    assert not torch.equal(method.transition, resumed.transition)
    resumed.load_state_dict(method.state_dict())
    assert torch.equal(method.transition, resumed.transition)


def test_shares_of_the_phases_sum_to_one():
    phases = LossCorrection(task(), SETTINGS).phases(SETTINGS)
    assert [phase.fresh for phase in phases] == [True, True]
    assert sum(phase.share for phase in phases) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [{"estimation_share": 0.0}, {"estimation_share": 1.0}, {"anchor_rank": 1.5}])
def test_illegal_settings_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        LossCorrectionSettings(**wrong)
