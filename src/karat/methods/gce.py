"""Generalised cross-entropy (Zhang and Sabuncu 2018): a loss between cross-entropy and mean absolute error."""

from dataclasses import dataclass

import torch

from karat.algorithm.pseudo_labels import log_probability
from karat.errors import UserError
from karat.methods.step import Batch, Learner, StepResult


@dataclass(frozen=True)
class GceSettings:
    """Choices of generalised cross-entropy.

    Attributes:
        exponent: q of the loss; near 0 it is cross-entropy, at 1 the mean absolute error. Larger learns slower (their
            paper: 0.7; digits, 20 epochs, one seed, 40% and 80% uniform noise: 0.4 gives 98% and 55%, 0.7 gives 93% and
            26%).
    """

    exponent: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.exponent <= 1:
            raise UserError(f"methods.gce.exponent is {self.exponent}: write a number above 0 and at most 1.")


def gce(learner: Learner, batch: Batch, settings: GceSettings, generator: torch.Generator) -> StepResult:
    """Descend the mean of `(1 − p_y^q) / q`, p_y the probability of the given label; no trusted examples.

    Its gradient is that of the cross-entropy times p_y^q: a label that the network doubts counts less. Their paper also
    has a truncated loss that drops examples by turns; this is the plain one.
    """
    logits = learner.network(learner.augmentation.weak(batch.noisy_inputs, generator))
    log_given = log_probability(logits).gather(1, batch.given_labels[:, None])
    loss = (-torch.expm1(settings.exponent * log_given) / settings.exponent).mean()
    learner.update(loss)
    return StepResult({"loss": loss.detach()}, logits.detach())
