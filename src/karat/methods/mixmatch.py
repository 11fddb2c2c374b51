"""MixMatch (Berthelot et al. 2019): semi-supervised, the trusted examples are labelled, the noisy ones are not."""

import torch

from karat.algorithm.targets import one_hot
from karat.methods.settings import MixMatchSettings
from karat.methods.shared.ensemble import log_mean_prediction
from karat.methods.shared.mixup import mixed_with_others
from karat.methods.shared.soft_labels import labelled_and_guessed_losses, sharpened
from karat.methods.shared.warm_up import ramp
from karat.methods.step import Batch, Learner, StepResult


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
