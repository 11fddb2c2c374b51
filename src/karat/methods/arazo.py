"""Arazo et al. 2019, their M-DYR-H: a beta mixture of the losses tells wrong labels, predictions replace them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy, one_hot
from karat.methods.method import Method, Task, logits_at
from karat.methods.settings import ArazoSettings
from karat.methods.shared.beta_mixture import fit_beta_mixture, upper_posterior
from karat.methods.shared.mixup import mixed_with_others
from karat.methods.shared.soft_labels import uniform_prior_penalty
from karat.methods.shared.warm_up import warming_up
from karat.methods.step import Batch, Learner, Progress, StepResult


class Arazo(Method):
    """Mix up examples whose targets are `(1−w)·y + w·z`: w the probability of a wrong label, z the predicted class.

    Unlike in the paper w is computed once an epoch, and each example has a mixup factor of its own.
    """

    remembers = ("wrong",)

    def __init__(self, task: Task, settings: ArazoSettings) -> None:
        super().__init__(task, settings)
        self.wrong = torch.zeros(len(task))

    def begin_epoch(
        self, progress: Progress, learner: Learner, settings: ArazoSettings, generator: torch.Generator
    ) -> None:
        """Model the losses of all noisy examples, after the warm-up."""
        if not warming_up(progress, settings.warm_up):
            logits = logits_at(learner, self.task.noisy_inputs, torch.arange(len(self.task)))
            self.wrong = wrong_probability(F.cross_entropy(logits, self.task.given_labels, reduction="none"))

    def step(self, learner: Learner, batch: Batch, settings: ArazoSettings, generator: torch.Generator) -> StepResult:
        """Descend the cross-entropy of the mixed targets plus the prior's penalty; mixup alone in the warm-up."""
        inputs = learner.noisy_view(batch, generator)
        targets = one_hot(batch.given_labels, learner.classes, like=inputs)
        if warming_up(batch.progress, settings.warm_up):
            mixed, mixed_targets = mixed_with_others(inputs, targets, settings.mixup, generator)
            loss = cross_entropy(mixed_targets, log_probability(learner.network(mixed))).mean()
            learner.update(loss)
            return StepResult({"loss": loss.detach()}, None)

        with torch.no_grad():
            unmixed = learner.network(inputs)
        wrong = self.wrong[batch.rows].to(unmixed)
        predicted = one_hot(unmixed.argmax(dim=1), learner.classes, like=unmixed)
        targets = torch.lerp(targets.to(unmixed), predicted, wrong[:, None])
        mixed, mixed_targets = mixed_with_others(inputs, targets, settings.mixup, generator)
        logits = learner.network(mixed)
        fit = cross_entropy(mixed_targets, log_probability(logits)).mean()
        prior = uniform_prior_penalty(logits)
        loss = fit + settings.prior_weight * prior
        learner.update(loss)
        losses = {"loss": loss.detach(), "fit": fit.detach(), "prior": prior.detach()}
        return StepResult(losses, unmixed, label_trust=1 - wrong)


def wrong_probability(losses: Tensor) -> Tensor:
    """Return for each loss the probability of the high component of a beta mixture, in [1e-4, 1 − 1e-4].

    The losses between their 5th and 95th percentiles, scaled to (0, 1), fit the mixture; the rest count as its ends.
    """
    low, high = losses.double().quantile(0.05), losses.double().quantile(0.95)
    scaled = ((losses - low) / (high - low).clamp(min=1e-6)).clamp(1e-3, 1 - 1e-3)
    inner = scaled[(losses >= low) & (losses <= high)]
    mixture = fit_beta_mixture(inner if len(inner) else scaled)  # of two losses none is between the percentiles
    return upper_posterior(mixture, scaled).clamp(1e-4, 1 - 1e-4).float()
