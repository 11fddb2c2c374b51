"""The model of the labels: Bayes' rule, a noise that is found again, decisions that hold above half of wrong labels."""

import pytest
import torch
from records import made_up, next_class, uniform
from sklearn.metrics import roc_auc_score

from karat.audit.beliefs import Calibration, beliefs, calibrate, pull
from karat.noise_matrix import fit_transition


def fitted(record):
    trusted = record.trusted_ledger.probabilities
    calibration = calibrate(record.ledger.probabilities, record.noisy.labels, trusted, record.trusted.labels)
    return calibration, beliefs(calibration, record.ledger.probabilities, record.noisy.labels)


def test_the_posterior_is_bayes_rule():
    """p = (0.6, 0.4) and P(given 1 | true 0) = 0.1, P(given 1 | true 1) = 0.8: 0.06 against 0.32."""
    calibration = Calibration(1.0, torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64))
    found = calibration.posterior(torch.tensor([[0.6, 0.4]]), torch.tensor([1]))
    torch.testing.assert_close(found, torch.tensor([[0.06, 0.32]], dtype=torch.float64) / 0.38)
    believed = beliefs(calibration, torch.tensor([[0.6, 0.4]]), torch.tensor([1]))
    assert believed.predicted.item() == 0  # without a look at the label
    assert believed.other.item() == 0
    torch.testing.assert_close(believed.quality.item(), 0.32 / 0.38)
    torch.testing.assert_close(believed.confidence.item(), 0.06 / 0.38)


def test_certain_predictions_give_the_counted_transition():
    """Of 60 examples of class 0, 45 are given as 0 and 15 as 1; of 40 of class 1 all are right: rows (¾, ¼) and (0, 1).

    The pull of one example moves them by less than 1/40.
    """
    true = torch.tensor([0] * 60 + [1] * 40)
    given = torch.tensor([0] * 45 + [1] * 55)
    transition = fit_transition(torch.eye(2, dtype=torch.float64)[true], given, uniform(2, 1.0), pull, rounds=30)
    torch.testing.assert_close(
        transition, torch.tensor([[0.75, 0.25], [0, 1]], dtype=torch.float64), atol=1 / 40, rtol=0
    )
    torch.testing.assert_close(transition.sum(dim=1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    "noise", [uniform(5, 0.2), uniform(5, 0.4), uniform(5, 0.8), next_class(5, 0.4), uniform(2, 0.4)]
)
def test_noise_and_wrong_labels_are_found(noise):
    """A network that errs in 3% of all cases, unsure of itself: the transition is found to 5 points.

    With a share r of wrong labels, differing from the prediction has the precision .97·r / (.97·r + .03·(1−r)) and the
    recall .97, also with 64% wrong labels; nobody can do better who knows no more.
    """
    record, true = made_up(noise)
    calibration, believed = fitted(record)
    wrong = record.noisy.labels != true
    torch.testing.assert_close(calibration.transition, torch.as_tensor(noise), atol=0.05, rtol=0)
    issue = believed.quality < 0.5
    rate = wrong.double().mean().item()
    assert wrong[issue].double().mean() > 0.97 * rate / (0.97 * rate + 0.03 * (1 - rate)) - 0.03
    assert issue[wrong].double().mean() > 0.97 - 0.04
    assert roc_auc_score(wrong, -believed.quality) > 0.95


def test_confidence_is_calibrated():
    """Of the suggestions with a mean confidence of x, about x are right; the network itself says 0.8 and means 0.97."""
    record, true = made_up(uniform(5, 0.8), examples=6000, trusted=500)
    _, believed = fitted(record)
    issue = believed.quality < 0.5
    right = (believed.other == true)[issue].double().mean()
    assert abs(believed.confidence[issue].mean() - right) < 0.05


def test_what_is_known_by_heart_is_still_ranked():
    """All given labels are predicted, some less surely: these come first, as far as 16 digits tell."""
    surety = torch.linspace(0.6, 0.99, 50)
    p = torch.stack([surety, 1 - surety], dim=1)
    given = torch.zeros(50, dtype=torch.int64)
    calibration = calibrate(p, given, p[:2], given[:2])
    quality = beliefs(calibration, p, given).quality
    assert (quality.diff() >= 0).all()
    assert (quality.diff()[:25] > 0).all()


def test_large_predictions_are_read_piece_by_piece(monkeypatch):
    record, _ = made_up(uniform(4, 0.4), examples=101)
    calibration, whole = fitted(record)
    monkeypatch.setattr("karat.audit.beliefs._CHUNK_ENTRIES", 40)
    pieces = beliefs(calibration, record.ledger.probabilities, record.noisy.labels)
    for name in ("quality", "other", "confidence", "predicted"):
        assert torch.equal(getattr(pieces, name), getattr(whole, name))


def test_a_fit_looks_at_a_part_of_very_many_examples(monkeypatch):
    record, _ = made_up(uniform(4, 0.4), examples=4000)
    whole, _ = fitted(record)
    monkeypatch.setattr("karat.audit.beliefs.FIT_ENTRIES", 4000)
    part, _ = fitted(record)
    torch.testing.assert_close(part.transition, whole.transition, atol=0.06, rtol=0)
