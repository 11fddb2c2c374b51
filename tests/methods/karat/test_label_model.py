"""The label model: several judges, weighed by labels that they have not seen."""

import pytest
import torch

from karat.methods.karat.judge import Judge
from karat.methods.karat.label_model import first_transition, fit_label_model
from karat.noise_matrix import true_posterior, uniform_transition

CLASSES, COUNT = 4, 4000
NOISE = uniform_transition(CLASSES, 0.6)


def judged(spread, seed, sure=1.0, count=COUNT):
    """Return a judge that sees classes through so much noise, `sure` times as sure as it should be; and labels."""
    true = torch.arange(count) % CLASSES
    given = torch.multinomial(NOISE[true], 1, generator=torch.Generator().manual_seed(9)).squeeze(1)
    seen = torch.eye(CLASSES)[true] + spread * torch.randn(
        count, CLASSES, generator=torch.Generator().manual_seed(seed)
    )
    return Judge(sure * seen / spread**2, None, first_transition(CLASSES), torch.empty(0), torch.empty(0)), given, true


def test_two_judges_that_err_apart_are_better_than_either():
    one, given, true = judged(0.6, seed=0)
    other, _, _ = judged(0.6, seed=1)
    right = [
        (fit_label_model(judges, given, true[:0]).probabilities.argmax(dim=1) == true).float().mean()
        for judges in ([one], [other], [one, other])
    ]
    assert right[2] > max(right[:2]) + 0.05


def test_a_judge_that_knows_nothing_is_not_heard():
    good, given, true = judged(0.6, seed=0)
    blind, _, _ = judged(30.0, seed=1, sure=900.0)
    found = fit_label_model([good, blind], given, true[:0])
    alone = (good.logits.argmax(dim=1) == true).float().mean()
    assert found.sharpness[1] < found.sharpness[0] / 5
    assert (found.probabilities.argmax(dim=1) == true).float().mean() > alone - 0.02


@pytest.mark.parametrize("sure", [0.6, 1.0, 1.6])
def test_a_sharpness_makes_a_judge_as_sure_as_it_is_right(sure):
    """Enough labels overrule the prior of the sharpness."""
    judge, given, true = judged(0.6, seed=0, sure=sure, count=20_000)
    found = fit_label_model([judge], given, true[:0])
    right = (found.probabilities.argmax(dim=1) == true).float().mean()
    assert found.probabilities.max(dim=1).values.mean() == pytest.approx(right.item(), abs=0.04)
    assert (found.transition - NOISE).abs().max() < 0.07
    torch.testing.assert_close(found.posterior, true_posterior(found.probabilities, given, found.transition))


def test_trusted_labels_speak_where_given_ones_say_nothing():
    """Labels at random leave a judge's sharpness where it was; a hundred trusted labels that it gets wrong do not."""
    judge, _, true = judged(0.6, seed=0, sure=2.5)
    nothing = torch.randint(CLASSES, (COUNT,), generator=torch.Generator().manual_seed(2))
    wrong = judge._replace(trusted_logits=judge.logits[:100])
    assert fit_label_model([wrong], nothing, (true[:100] + 1) % CLASSES).sharpness < 0.5
    assert fit_label_model([judge], nothing, true[:0]).sharpness == pytest.approx(1.0, abs=0.5)


def test_that_most_labels_are_wrong_alike_needs_evidence():
    """Judges that know nothing fit swapped labels as well as right ones; those that know something can tell."""
    swapped = torch.eye(2).flip(0) * 0.9 + 0.05
    true = torch.arange(40) % 2
    noise = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    blind = Judge(noise, None, swapped, torch.empty(0), torch.empty(0))
    found = fit_label_model([blind], true, true[:0])
    assert found.sharpness == 0
    assert (found.transition.diagonal() > 0.5).all()
    assert torch.equal(found.posterior.argmax(dim=1), true)
    seeing = blind._replace(logits=5 * torch.eye(2)[true] + noise)
    found = fit_label_model([seeing], 1 - true, true[:0])
    assert (found.transition.diagonal() < 0.2).all()
    assert torch.equal(found.posterior.argmax(dim=1), true)
