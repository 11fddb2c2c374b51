"""Learning to Reweight (Ren et al. 2018): each noisy example counts as much as it helps the trusted batch."""

from dataclasses import dataclass
from typing import Literal

import torch

from karat.algorithm.coefficients import influence_on_trusted, normalized_weights
from karat.algorithm.directional import derivative_named
from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy, one_hot
from karat.errors import UserError
from karat.methods.step import Batch, Learner, StepResult


@dataclass(frozen=True)
class L2rSettings:
    """Choices of Learning to Reweight.

    Attributes:
        weights_epsilon: added to the sum of the weights when they are normalised.
        derivative: "jvp" (exact), "finite_difference", or "auto": jvp where the model allows it.
    """

    weights_epsilon: float = 0.0
    derivative: Literal["auto", "jvp", "finite_difference"] = "auto"

    def __post_init__(self) -> None:
        if not self.weights_epsilon >= 0:
            raise UserError(f"methods.l2r.weights_epsilon is {self.weights_epsilon}: write 0 or more.")


def l2r(learner: Learner, batch: Batch, settings: L2rSettings, generator: torch.Generator) -> StepResult:
    """Descend `Σ ω_i L(y_i, z_i)` with ω from the meta-gradient at ω0 = 0.

    There the look-ahead is the model itself, so one trusted gradient and one Jacobian-vector product are enough.
    """
    weak = learner.network.forward_pass(learner.augmentation.weak(batch.noisy_inputs, generator))
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
