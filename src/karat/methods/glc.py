"""Gold loss correction (Hendrycks et al. 2018): the noise matrix is measured on the trusted examples."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.method import Method, Phase, Task, logits_at
from karat.methods.settings import GlcSettings
from karat.methods.step import Batch, Learner, StepResult
from karat.methods.supervised import supervised
from karat.noise_matrix import corrected_cross_entropy, trusted_transition


class GoldLossCorrection(Method):
    """Train plainly, measure `C[true, given]` on the trusted examples, train anew on both sets.

    `(1−v)·mean −log (softmax(z)·C)_given` over the noisy and `+ v·mean −log softmax(z)_true` over the trusted examples.
    With v the trusted share of all examples this is the mean over the union of the sets, which their paper descends.
    """

    remembers = ("transition",)

    def __init__(self, task: Task, settings: GlcSettings) -> None:
        super().__init__(task, settings)
        self.transition = torch.eye(task.classes)

    def phases(self, settings: GlcSettings) -> tuple[Phase, ...]:
        """Return plain training and corrected training."""
        return (Phase(settings.estimation_share), Phase(1 - settings.estimation_share))

    def begin_phase(
        self, number: int, learner: Learner, settings: GlcSettings, generator: torch.Generator
    ) -> Tensor | None:
        """Measure the matrix with the plainly trained network."""
        if number == 1:
            trusted = self.task.trusted_labels
            trusted_logits = logits_at(learner, self.task.trusted_inputs, torch.arange(len(trusted)))
            self.transition = trusted_transition(trusted_logits.softmax(dim=1), trusted)
        return None

    def step(self, learner: Learner, batch: Batch, settings: Any, generator: torch.Generator) -> StepResult:
        """Descend the plain cross-entropy, then the corrected one together with that of the trusted examples."""
        if batch.progress.phase == 0:
            return supervised(learner, batch, settings, generator)
        inputs = learner.augmentation.weak(torch.cat([batch.noisy_inputs, batch.trusted_inputs]), generator)
        noisy, trusted = learner.network(inputs).split([len(batch.given_labels), len(batch.trusted_labels)])
        corrected = corrected_cross_entropy(noisy, batch.given_labels, self.transition).mean()
        gold = F.cross_entropy(trusted, batch.trusted_labels)
        loss = torch.lerp(corrected, gold, self._trusted_weight(settings))
        learner.update(loss)
        losses = {"loss": loss, "corrected": corrected, "trusted": gold}
        return StepResult({name: value.detach() for name, value in losses.items()}, noisy.detach())

    def _trusted_weight(self, settings: GlcSettings) -> float:
        if settings.trusted_weight is not None:
            return settings.trusted_weight
        trusted = len(self.task.trusted_labels)
        return trusted / (len(self.task) + trusted)
