"""Forward loss correction (Patrini et al. 2017): learn the true labels through an estimated noise matrix."""

from typing import Any

import torch
from torch import Tensor

from karat.methods.method import Method, Phase, Task, logits_at
from karat.methods.settings import LossCorrectionSettings
from karat.methods.step import Batch, Learner, StepResult
from karat.methods.supervised import supervised
from karat.noise_matrix import anchor_transition, corrected_cross_entropy


class LossCorrection(Method):
    """Train plainly, estimate `T[true, given]` from the predictions, train anew on `−log (softmax(z)·T)_given`.

    Uses no trusted examples.
    """

    remembers = ("transition",)

    def __init__(self, task: Task, settings: LossCorrectionSettings) -> None:
        super().__init__(task, settings)
        self.transition = torch.eye(task.classes)

    def phases(self, settings: LossCorrectionSettings) -> tuple[Phase, ...]:
        """Return plain training and corrected training."""
        return (Phase(settings.estimation_share), Phase(1 - settings.estimation_share))

    def begin_phase(
        self, number: int, learner: Learner, settings: LossCorrectionSettings, generator: torch.Generator
    ) -> Tensor | None:
        """Estimate the matrix with the plainly trained network."""
        if number == 1:
            logits = logits_at(learner, self.task.noisy_inputs, torch.arange(len(self.task)))
            self.transition = anchor_transition(logits.softmax(dim=1), settings.anchor_rank)
        return None

    def step(self, learner: Learner, batch: Batch, settings: Any, generator: torch.Generator) -> StepResult:
        """Descend the plain, then the corrected cross-entropy."""
        if batch.progress.phase == 0:
            return supervised(learner, batch, settings, generator)
        logits = learner.network(learner.noisy_view(batch, generator))
        loss = corrected_cross_entropy(logits, batch.given_labels, self.transition).mean()
        learner.update(loss)
        return StepResult({"loss": loss.detach()}, logits.detach())
