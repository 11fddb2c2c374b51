"""Forward loss correction (Patrini et al. 2017): learn the true labels through an estimated noise matrix."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from karat.errors import UserError
from karat.methods.method import Method, Phase, Task, logits_at
from karat.methods.step import Batch, Learner, StepResult
from karat.methods.supervised import supervised
from karat.noise_matrix import anchor_transition, corrected_cross_entropy


@dataclass(frozen=True)
class LossCorrectionSettings:
    """Choices of forward loss correction.

    Attributes:
        estimation_share: share of the run for the plain training from which the matrix is estimated (their paper trains
            twice for the full length).
        anchor_rank: place of a class's anchor among its most confident examples, as a share of an average class; 0 is
            the surest of all (their paper: the 97th percentile of all examples on CIFAR-10, which is 0.3, and 0 on
            CIFAR-100; digits, 20 epochs, one seed, 40% uniform noise: 0 gives 90%, 0.3 gives 86%).
    """

    estimation_share: float = 0.4
    anchor_rank: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.estimation_share < 1:
            raise UserError(
                f"methods.loss_correction.estimation_share is {self.estimation_share}: write a number between 0 and 1, "
                "such as 0.4."
            )
        if not 0 <= self.anchor_rank <= 1:
            raise UserError(
                f"methods.loss_correction.anchor_rank is {self.anchor_rank}: write a number between 0 and 1."
            )


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
        logits = learner.network(learner.augmentation.weak(batch.noisy_inputs, generator))
        loss = corrected_cross_entropy(logits, batch.given_labels, self.transition).mean()
        learner.update(loss)
        return StepResult({"loss": loss.detach()}, logits.detach())
