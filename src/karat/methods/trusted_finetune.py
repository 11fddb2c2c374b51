"""Plain training on the noisy set, then fine-tuning on the trusted one: what most people would try first."""

from dataclasses import dataclass

import torch

from karat.errors import UserError
from karat.methods.method import Method, Phase
from karat.methods.step import Batch, Learner, Step, StepResult
from karat.methods.supervised import supervised
from karat.methods.trusted_only import trusted_only


@dataclass(frozen=True)
class TrustedFinetuneSettings:
    """Choices of fine-tuning.

    Attributes:
        finetune_share: share of the run for the trusted examples.
        rate: learning rate of fine-tuning as a multiple of the run's (digits, 20 epochs, one seed, 80% uniform noise: 1
            gives 90%, 0.1 gives 56%; at 40% noise both 97%).
    """

    finetune_share: float = 0.2
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.finetune_share < 1:
            raise UserError(
                f"methods.trusted_finetune.finetune_share is {self.finetune_share}: write a number between 0 and 1, "
                "such as 0.2."
            )
        if not self.rate > 0:
            raise UserError(f"methods.trusted_finetune.rate is {self.rate}: write a number above 0, such as 1.")


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
