"""Plain training on the noisy set, then fine-tuning on the trusted one: what most people would try first."""

import torch

from karat.methods.method import Method, Phase
from karat.methods.settings import TrustedFinetuneSettings
from karat.methods.step import Batch, Learner, Step, StepResult
from karat.methods.supervised import supervised
from karat.methods.trusted_only import trusted_only


class TrustedFinetune(Method):
    """Descend the cross-entropy of the given labels, then, from there, that of the trusted labels."""

    def phases(self, settings: TrustedFinetuneSettings) -> tuple[Phase, ...]:
        """Return plain training and fine-tuning."""
        return (Phase(1 - settings.finetune_share), Phase(settings.finetune_share, fresh=False, rate=settings.rate))

    def step(
        self, learner: Learner, batch: Batch, settings: TrustedFinetuneSettings, generator: torch.Generator
    ) -> StepResult:
        """Take a step on the noisy batch, in the second phase on the trusted one."""
        step: Step = supervised if batch.progress.phase == 0 else trusted_only
        return step(learner, batch, settings, generator)
