"""Generalised cross-entropy (Zhang and Sabuncu 2018): a loss between cross-entropy and mean absolute error."""

import torch

from karat.algorithm.pseudo_labels import log_probability
from karat.methods.settings import GceSettings
from karat.methods.step import Batch, Learner, StepResult


def gce(learner: Learner, batch: Batch, settings: GceSettings, generator: torch.Generator) -> StepResult:
    """Descend the mean of `(1 − p_y^q) / q`, p_y the probability of the given label; no trusted examples.

    Its gradient is that of the cross-entropy times p_y^q: a label that the network doubts counts less. Their paper also
    has a truncated loss that drops examples by turns; this is the plain one.
    """
    logits = learner.network(learner.noisy_view(batch, generator))
    log_given = log_probability(logits).gather(1, batch.given_labels[:, None])
    loss = (-torch.expm1(settings.exponent * log_given) / settings.exponent).mean()
    learner.update(loss)
    return StepResult({"loss": loss.detach()}, logits.detach())
