"""Plain training on the trusted examples alone: what the noisy set must beat to be worth anything."""

from typing import Any

import torch
import torch.nn.functional as F

from karat.methods.step import Batch, Learner, StepResult


def trusted_only(learner: Learner, batch: Batch, settings: Any, generator: torch.Generator) -> StepResult:
    """Descend the mean cross-entropy of the trusted labels; the noisy batch is not used, so it has no logits."""
    logits = learner.network(learner.augmentation.weak(batch.trusted_inputs, generator))
    loss = F.cross_entropy(logits, batch.trusted_labels, label_smoothing=learner.label_smoothing)
    learner.update(loss)
    return StepResult({"loss": loss.detach()}, None)
