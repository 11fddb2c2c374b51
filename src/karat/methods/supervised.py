"""Plain training: every given label is believed."""

from typing import Any

import torch
import torch.nn.functional as F

from karat.methods.step import Batch, Learner, StepResult


def supervised(learner: Learner, batch: Batch, settings: Any, generator: torch.Generator) -> StepResult:
    """Descend the mean cross-entropy of the given labels; the trusted batch is not used."""
    logits = learner.network(learner.noisy_view(batch, generator))
    loss = F.cross_entropy(logits, batch.given_labels, label_smoothing=learner.label_smoothing)
    learner.update(loss)
    return StepResult({"loss": loss.detach()}, logits.detach())
