"""Line 6 of Algorithm 1: the coefficient losses (eq. 8), the mixed losses and their total."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from karat.algorithm.coefficients import DataCoefficients
from karat.algorithm.pseudo_labels import kl_consistency, log_probability
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import blended_labels, chosen_labels, cross_entropy


class ViewsLoss(NamedTuple):
    """The terms of line 6 that the views give, each before its weight, and their weighted sum."""

    total: Tensor
    weighted: Tensor
    """L_ω*"""
    relabelled: Tensor
    """L_λ*"""
    consistency: Tensor
    """L_KL"""


class MixedLoss(NamedTuple):
    """The terms of line 6 that the joint batch gives, each before its weight, and their weighted sum."""

    total: Tensor
    mixed_trusted: Tensor
    """L_β^p"""
    mixed_noisy: Tensor
    """L_β^u"""


def coefficient_losses(
    logits: Tensor,
    given: Tensor,
    pseudo: Tensor,
    coefficients: DataCoefficients,
    initial_label_trust: float,
) -> tuple[Tensor, Tensor]:
    """Return the two losses of eq. 8: `L_ω* = Σ ω*_i L(P(λ0), z_i)` and `L_λ* = Σ ω0 L(y*_i, z_i)`, ω0 = 1/B.

    >>> logits, given, pseudo = torch.zeros(2, 2), torch.eye(2), torch.eye(2)
    >>> coefficients = DataCoefficients(torch.tensor([1.0, 0.0]), torch.ones(2), torch.zeros(2, 2))
    >>> coefficient_losses(logits, given, pseudo, coefficients, 0.9)
    (tensor(0.6931), tensor(0.6931))
    """
    log_probabilities = log_probability(logits)
    blended = blended_labels(given, pseudo, initial_label_trust)
    chosen = chosen_labels(given, pseudo, coefficients.label_trust)
    weighted = (coefficients.weights * cross_entropy(blended, log_probabilities)).sum()
    return weighted, cross_entropy(chosen, log_probabilities).mean()


def mixed_losses(
    logits: Tensor, targets: Tensor, part_sizes: Sequence[int], normalize: bool = False
) -> tuple[Tensor, Tensor]:
    """Return L_β^p over the part that starts from trusted examples and L_β^u over the other parts.

    The parts are the trusted examples, then the views of the noisy ones; with `normalize`, each part's logits
    are divided by their own root mean square.
    """
    losses = [
        cross_entropy(target, log_probability(z, normalize))
        for z, target in zip(logits.split(list(part_sizes)), targets.split(list(part_sizes)), strict=True)
    ]
    return losses[0].mean(), torch.cat(losses[1:]).mean()


def views_loss(
    weighted_and_relabelled: tuple[Tensor, Tensor], views: Sequence[Tensor], settings: AlgorithmSettings
) -> ViewsLoss:
    """Return `L_ω* + L_λ* + k·L_KL` and its terms; ablations weigh L_λ*, too."""
    weighted, relabelled = weighted_and_relabelled
    consistency = kl_consistency(views[0], views[1:], settings.consistency_gradient)
    share = 0.5 if settings.coefficient_losses == "mean" else 1.0
    total = share * (weighted + settings.relabelled_weight * relabelled) + settings.consistency_weight * consistency
    return ViewsLoss(total, weighted, relabelled, consistency)


def mixed_loss(mixed: tuple[Tensor, Tensor], settings: AlgorithmSettings) -> MixedLoss:
    """Return `L_β^p + p·L_β^u` and its terms; ablations weigh L_β^p, too."""
    trusted, noisy = mixed
    return MixedLoss(settings.mixed_trusted_weight * trusted + settings.mixed_noisy_weight * noisy, trusted, noisy)
