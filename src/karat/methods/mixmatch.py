"""MixMatch (Berthelot et al. 2019): semi-supervised, the trusted examples are labelled, the noisy ones are not."""

from dataclasses import dataclass

import torch

from karat.algorithm.targets import one_hot
from karat.errors import UserError
from karat.methods.shared.ensemble import log_mean_prediction
from karat.methods.shared.mixup import mixed_with_others
from karat.methods.shared.soft_labels import labelled_and_guessed_losses, sharpened
from karat.methods.shared.warm_up import ramp
from karat.methods.step import Batch, Learner, StepResult


@dataclass(frozen=True)
class MixMatchSettings:
    """Choices of MixMatch.

    Attributes:
        views: K, how many weak views of an unlabelled example its guessed label averages.
        temperature: below 1 sharpens the guessed labels.
        mixup: a of the mixup factors' Beta(a, a).
        guessed_weight: λ_u, the weight of the guessed labels.
        ramp: share of the run over which that weight rises from 0 (paper: 16 of 1,024 epochs).
    """

    views: int = 2
    temperature: float = 0.5
    mixup: float = 0.75
    guessed_weight: float = 75.0
    ramp: float = 0.4

    def __post_init__(self) -> None:
        if self.views < 1:
            raise UserError(f"methods.mixmatch.views is {self.views}: write 1 or more.")
        for name in ("temperature", "mixup"):
            if not getattr(self, name) > 0:
                raise UserError(f"methods.mixmatch.{name} is {getattr(self, name)}: write a number above 0.")
        if not self.guessed_weight >= 0:
            raise UserError(f"methods.mixmatch.guessed_weight is {self.guessed_weight}: write 0 or more.")
        if not 0 <= self.ramp <= 1:
            raise UserError(f"methods.mixmatch.ramp is {self.ramp}: write a number between 0 and 1.")


def mixmatch(learner: Learner, batch: Batch, settings: MixMatchSettings, generator: torch.Generator) -> StepResult:
    """Descend `CE(trusted) + λ_u·mean (softmax − guess)²` over mixed examples; the given labels are not used.

    Unlike in the paper all mixed examples pass the network in one batch, so that their BatchNorm statistics need no
    interleaving, and evaluation uses the run's own weight average.
    """
    views = [learner.augmentation.weak(batch.noisy_inputs, generator) for _ in range(settings.views)]
    trusted_inputs = learner.augmentation.weak(batch.trusted_inputs, generator)
    with torch.no_grad():
        logits = [learner.network(view) for view in views]
    guess = sharpened(log_mean_prediction(logits).exp(), settings.temperature)
    trusted = one_hot(batch.trusted_labels, learner.classes, like=guess)

    inputs, targets = mixed_with_others(
        torch.cat([trusted_inputs, *views]),
        torch.cat([trusted, guess.repeat(len(views), 1)]),
        settings.mixup,
        generator,
        keep_first=True,
    )
    labelled = torch.arange(len(inputs), device=inputs.device) < len(trusted)
    fit, guessed = labelled_and_guessed_losses(learner.network(inputs), targets, labelled)
    loss = fit + settings.guessed_weight * ramp(batch.progress, 0.0, settings.ramp) * guessed
    learner.update(loss)
    losses = {"loss": loss.detach(), "labelled": fit.detach(), "guessed": guessed.detach()}
    return StepResult(losses, logits[0], pseudo_labels=guess)
