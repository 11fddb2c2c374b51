"""INCV: the noise formulas, who is selected and removed, the phases, what a checkpoint keeps."""

import copy
from dataclasses import replace

import pytest
import torch
from harness import CLASSES, batch, learner, network, task
from torch import nn

from karat.errors import UserError
from karat.methods.incv import CANDIDATE, REMOVED, SELECTED, Incv, IncvSettings
from karat.methods.shared.agreement import noise_among_selected, noise_rate_from_agreement, removed_per_selected
from karat.methods.step import Progress


class Reads(nn.Module):
    """Predict the class of the first input feature, as surely as the second one says."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, inputs):
        return inputs[:, 1:] * nn.functional.one_hot(inputs[:, 0].long(), CLASSES) + 0 * self.unused


def readable_task():
    """Return 24 examples, of which the first 6 have wrong labels; sureness, and so their losses, rises with the row."""
    truth = torch.arange(24) % CLASSES
    given = torch.where(torch.arange(24) < 6, (truth + 1) % CLASSES, truth)
    inputs = torch.stack([truth.double(), 1 + torch.arange(24).double()], dim=1)
    return replace(
        task(), given_labels=given, noisy_inputs=lambda rows: inputs[rows], new_learner=lambda: learner(Reads())
    )


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45])
def test_noise_rate_inverts_the_agreement(rate, classes):
    """Theorem 1 of Chen et al.: a network that learned symmetric noise agrees with (1−ε)² + ε²/(c−1) of new labels."""
    agreement = (1 - rate) ** 2 + rate**2 / (classes - 1)
    assert noise_rate_from_agreement(agreement, classes) == pytest.approx(rate, abs=1e-9)


def test_noise_rate_of_too_little_agreement():
    """(1−ε)² + ε²/9 has its minimum 0.1 at ε = 0.9."""
    assert noise_rate_from_agreement(0.05, 10) == pytest.approx(0.9)


def test_proportions():
    """ε = 0.4: 0.4/0.6 are removed for one selected; of 10 classes 0.16/(0.16 + 9·0.36) of the selected are wrong."""
    assert removed_per_selected(0.4) == pytest.approx(2 / 3)
    assert removed_per_selected(0.9) == 2
    assert noise_among_selected(0.4, 10) == pytest.approx(0.16 / 3.4)


def test_a_round_selects_what_is_predicted_and_removes_the_largest_losses():
    """18 of 24 labels are predicted. In the half that is judged first a of h agree, ε = ε(a/h), ⌊a·ε/(1−ε)⌋ go.

    The largest losses are those of the wrong labels with the highest rows, where the model is surest.
    """
    settings = IncvSettings(rounds=1)
    method, own, generator = Incv(readable_task(), settings), learner(Reads()), torch.Generator().manual_seed(0)
    first = method.begin_phase(0, own, settings, generator)
    second = method.begin_phase(1, own, settings, generator)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(24))
    assert len(first) == 12
    assert (method.status == CANDIDATE).all()  # nothing counts before the round is over

    selected = method.begin_phase(2, own, settings, generator)
    assert selected.tolist() == list(range(6, 24))
    rate = noise_rate_from_agreement((second >= 6).double().mean().item(), CLASSES)
    assert method.noise_rate == pytest.approx(rate)
    for half in (first, second):
        wrong = [row for row in half.tolist() if row < 6]
        count = int(rate / (1 - rate) * (len(half) - len(wrong)))
        removed = [row for row in half.tolist() if method.status[row] == REMOVED]
        assert removed == wrong[max(0, len(wrong) - count) :]


def test_candidates_are_kept_without_removal():
    settings = IncvSettings(rounds=1, remove=False)
    method, own = Incv(readable_task(), settings), learner(Reads())
    for number in range(3):
        method.begin_phase(number, own, settings, torch.Generator().manual_seed(0))
    assert method.status.tolist() == [CANDIDATE] * 6 + [SELECTED] * 18


def test_phases_share_the_run():
    settings = IncvSettings(rounds=2, fold_share=0.1)
    shares = [phase.share for phase in Incv(task(), settings).phases(settings)]
    assert shares == pytest.approx([0.1] * 4 + [0.6])


def test_candidates_join_later_and_only_batch_rows_are_reported():
    """|C|/|S| = 12/12 asks for 10 candidates with a batch of 10, half a batch is the most: 15 examples go in."""
    settings = IncvSettings(rounds=1, candidates_after=0.5)
    method, own = Incv(task(), settings), learner(network())
    method.status[:12] = SELECTED
    method.noise_rate = 0.0
    sizes = []
    own.network.module.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    for step in (40, 60):
        data = batch(10, Progress(step, 100, 2, phase=2))
        result = method.step(own, data, settings, torch.Generator().manual_seed(0))
        assert len(result.logits) == len(result.weights) == 10
    assert sizes == [10, 15]


def test_a_half_is_trained_plainly():
    settings = IncvSettings(rounds=2, fold_share=0.1)
    method, own = Incv(task(), settings), learner(network())
    before = copy.deepcopy(method.partner.network.module.state_dict())
    result = method.step(own, batch(10, Progress(0, 10, 2, phase=3)), settings, torch.Generator())
    assert torch.equal(result.weights, torch.full((10,), 0.1))
    torch.testing.assert_close(method.partner.network.module.state_dict(), before, rtol=0, atol=0)


def test_all_examples_where_none_is_selected():
    settings = IncvSettings(rounds=1)
    method = Incv(task(), settings)
    method.verdict[:] = method.status[:] = REMOVED
    assert method.begin_phase(2, learner(network()), settings, torch.Generator()) is None
    assert (method.status == SELECTED).all()


def test_state_survives():
    settings = IncvSettings()
    method, own, generator = Incv(readable_task(), settings), learner(Reads()), torch.Generator().manual_seed(0)
    method.begin_phase(0, own, settings, generator)
    method.begin_phase(1, own, settings, generator)
    restored = Incv(readable_task(), settings)
    restored.load_state_dict(copy.deepcopy(method.state_dict()))
    rows = [one.begin_phase(2, own, settings, torch.Generator().manual_seed(1)) for one in (method, restored)]
    assert torch.equal(*rows)
    assert restored.noise_rate == method.noise_rate >= 0


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"fold_share": 0.5}, {"ramp": -1}, {"candidates_after": 2}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UserError, match=f"methods.incv.{next(iter(wrong))} is"):
        IncvSettings(**wrong)
