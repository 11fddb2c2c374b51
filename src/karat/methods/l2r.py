"""Learning to Reweight (Ren et al. 2018): each noisy example counts as much as it helps the trusted batch."""

import torch

from karat.algorithm.coefficients import influence_on_trusted, normalized_weights
from karat.algorithm.directional import derivative_named
from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy, one_hot
from karat.methods.settings import L2rSettings
from karat.methods.step import Batch, Learner, StepResult


def l2r(learner: Learner, batch: Batch, settings: L2rSettings, generator: torch.Generator) -> StepResult:
    """Descend `Σ ω_i L(y_i, z_i)` with ω from the meta-gradient at ω0 = 0.

    There the look-ahead is the model itself, so one trusted gradient and one Jacobian-vector product are enough.
    """
    weak = learner.network.forward_pass(learner.noisy_view(batch, generator), settings.meta_layers)
    given = one_hot(batch.given_labels, learner.classes, like=weak.logits)
    trusted_inputs = learner.augmentation.weak(batch.trusted_inputs, generator)
    trusted = one_hot(batch.trusted_labels, learner.classes, like=weak.logits)

    gains = influence_on_trusted(
        learner.network, weak, given, trusted_inputs, trusted, derivative_named(settings.derivative)
    )
    weights = normalized_weights(gains, settings.weights_epsilon)
    loss = (weights * cross_entropy(given, log_probability(weak.logits))).sum()
    learner.update(loss)
    return StepResult({"loss": loss.detach()}, weak.logits.detach(), weights=weights)
