"""DivideMix (Li et al. 2020): two networks tell each other which labels to believe, and guess the others."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from karat.algorithm.targets import one_hot
from karat.methods.method import Method, Task, logits_at
from karat.methods.settings import DivideMixSettings
from karat.methods.shared.ensemble import Ensemble, log_mean_prediction
from karat.methods.shared.gaussian_mixture import clean_probability
from karat.methods.shared.mixup import mixed_with_others
from karat.methods.shared.soft_labels import labelled_and_guessed_losses, sharpened, uniform_prior_penalty
from karat.methods.shared.warm_up import ramp, warming_up
from karat.methods.step import Batch, Learner, Progress, StepResult

VIEWS = 2


class DivideMix(Method):
    """Train each network by MixMatch, with the labelled part that the other one's losses show.

    Unlike in the paper each batch is divided, instead of drawing batches from both parts, both networks step at once,
    and each example has a mixup factor of its own.
    """

    remembers = ("partner", "clean", "partner_clean")

    def __init__(self, task: Task, settings: DivideMixSettings) -> None:
        super().__init__(task, settings)
        self.partner = task.new_learner()
        self.partners = (self.partner,)
        self.clean = torch.ones(len(task))  # by the learner's losses, for its partner
        self.partner_clean = torch.ones(len(task))

    def begin_epoch(
        self, progress: Progress, learner: Learner, settings: DivideMixSettings, generator: torch.Generator
    ) -> None:
        """Model the losses of all noisy examples, after the warm-up."""
        if not warming_up(progress, settings.warm_up):
            self.clean, self.partner_clean = (
                clean_probability(F.cross_entropy(logits, self.task.given_labels, reduction="none"))
                for logits in (
                    logits_at(one, self.task.noisy_inputs, torch.arange(len(self.task)))
                    for one in (learner, self.partner)
                )
            )

    def step(
        self, learner: Learner, batch: Batch, settings: DivideMixSettings, generator: torch.Generator
    ) -> StepResult:
        """Warm up both networks, or train both with refined and guessed labels."""
        if warming_up(batch.progress, settings.warm_up):
            return warm_up(learner, self.partner, batch, settings.entropy_penalty, generator)
        views = [learner.augmentation.weak(batch.noisy_inputs, generator) for _ in range(VIEWS)]
        learners = (learner, self.partner)
        with torch.no_grad():
            logits = [[one.network(view) for view in views] for one in learners]
        given = one_hot(batch.given_labels, learner.classes, like=logits[0][0])
        guess = log_mean_prediction([*logits[0], *logits[1]])
        # Each network gets the probabilities that come from the other one's losses.
        clean = [column[batch.rows].to(given) for column in (self.partner_clean, self.clean)]
        guessed_weight = settings.guessed_weight * ramp(batch.progress, settings.warm_up, settings.ramp)
        found = []
        for one, own, trust in zip(learners, logits, clean, strict=True):
            labelled = trust > settings.threshold
            refined = torch.lerp(log_mean_prediction(own).exp(), given, trust[:, None])
            targets = sharpened(torch.where(labelled[:, None], refined, guess.exp()), settings.temperature)
            found.append(_mixmatch(one, views, targets, labelled, guessed_weight, settings.mixup, generator))
        return StepResult(found[0], guess, label_trust=(clean[0] + clean[1]) / 2)

    def deployed(self, module: nn.Module) -> nn.Module:
        """Return the mean of both networks."""
        return Ensemble(module, self.partner.network.module)


def warm_up(
    learner: Learner, partner: Learner, batch: Batch, entropy_penalty: bool, generator: torch.Generator
) -> StepResult:
    """Descend the cross-entropy of the given labels, minus the predictions' entropy if asked, with both networks."""
    inputs = learner.noisy_view(batch, generator)
    logits, losses = [], []
    for one in (learner, partner):
        z = one.network(inputs)
        loss = F.cross_entropy(z, batch.given_labels)
        if entropy_penalty:
            loss = loss + (z.softmax(dim=1) * z.log_softmax(dim=1)).sum(dim=1).mean()
        one.update(loss)
        logits.append(z.detach())
        losses.append(loss.detach())
    return StepResult({"loss": losses[0]}, log_mean_prediction(logits))


def _mixmatch(
    learner: Learner, views: Sequence[Tensor], targets: Tensor, labelled: Tensor, guessed_weight: float,
    mixup: float, generator: torch.Generator,
) -> dict[str, Tensor]:  # fmt: skip
    inputs, mixed_targets = mixed_with_others(
        torch.cat(list(views)), targets.repeat(len(views), 1), mixup, generator, keep_first=True
    )
    logits = learner.network(inputs)
    fit, guessed = labelled_and_guessed_losses(logits, mixed_targets, labelled.repeat(len(views)))
    prior = uniform_prior_penalty(logits)
    loss = fit + guessed_weight * guessed + prior
    learner.update(loss)
    return {"loss": loss.detach(), "labelled": fit.detach(), "guessed": guessed.detach(), "prior": prior.detach()}
