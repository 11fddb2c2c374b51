"""Eq. 8 and line 6: each term is its formula, written out a second time."""

import pytest
import torch

from karat.algorithm.coefficients import DataCoefficients
from karat.algorithm.losses import coefficient_losses, mixed_loss, mixed_losses, views_loss
from karat.algorithm.settings import AlgorithmSettings
from karat.errors import UserError


def test_coefficient_losses_are_eq_8():
    logits = torch.randn(4, 3)
    given, pseudo = torch.eye(3)[[0, 1, 2, 0]], torch.randn(4, 3).softmax(1)
    weights, trust = torch.tensor([0.5, 0.0, 0.3, 0.2]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    found = coefficient_losses(logits, given, pseudo, DataCoefficients(weights, trust, logits), 0.9)
    weighted = relabelled = 0.0
    for i in range(4):
        log_p = logits[i].log_softmax(0)
        weighted += weights[i] * -((0.9 * given[i] + 0.1 * pseudo[i]) * log_p).sum()
        relabelled += 1 / 4 * -((given[i] if trust[i] else pseudo[i]) * log_p).sum()
    torch.testing.assert_close(found, (weighted, relabelled))


def test_mixed_losses_average_each_side():
    logits, targets = torch.randn(6, 3), torch.randn(6, 3).softmax(1)
    each = -(targets * logits.log_softmax(1)).sum(1)
    found = mixed_losses(logits, targets, part_sizes=(2, 2, 2))
    torch.testing.assert_close(found, (each[:2].mean(), each[2:].mean()))


def test_normalized_parts_are_scaled_on_their_own():
    """Scaling one part's logits by 7 changes nothing; the parts do not share one root mean square."""
    logits, targets = torch.randn(6, 3), torch.randn(6, 3).softmax(1)
    scaled = torch.cat([7 * logits[:2], logits[2:]])
    torch.testing.assert_close(
        mixed_losses(scaled, targets, (2, 4), normalize=True), mixed_losses(logits, targets, (2, 4), normalize=True)
    )


@pytest.mark.parametrize(("kind", "share"), [("sum", 1.0), ("mean", 0.5)])
def test_total_is_line_6(kind, share):
    views = [torch.randn(4, 3), torch.randn(4, 3)]
    settings = AlgorithmSettings(mixed_noisy_weight=5, consistency_weight=20, coefficient_losses=kind)
    of_views = views_loss((torch.tensor(1.0), torch.tensor(2.0)), views, settings)
    of_joint = mixed_loss((torch.tensor(3.0), torch.tensor(4.0)), settings)
    torch.testing.assert_close(of_views.total, share * (1 + 2) + 20 * of_views.consistency)
    torch.testing.assert_close(of_joint.total, torch.tensor(3.0 + 5 * 4))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"views": 1}, "2 views or more"),
        ({"temperature": 0.0}, "above 0"),
        ({"initial_label_trust": 1.5}, "between 0 and 1"),
        ({"consistency_weight": -1.0}, "0 or more"),
        ({"meta_layers": 0}, "1 or more, or null"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    with pytest.raises(UserError, match=message):
        AlgorithmSettings(**setting)
