"""Co-teaching (Han et al. 2018): two networks, each learns from the examples that the other finds easy."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from karat.methods.method import Method, Task, logits_at
from karat.methods.settings import CoTeachingSettings
from karat.methods.shared.agreement import noise_rate_from_accuracy
from karat.methods.shared.ensemble import Ensemble, log_mean_prediction
from karat.methods.shared.warm_up import ramp, warming_up
from karat.methods.step import Batch, Learner, Progress, StepResult


class CoTeaching(Method):
    """Keep `R(t) = 1 − τ·min(t/T_k, 1)` of each batch: the examples with the smallest losses, chosen by the partner.

    Unlike in the paper τ may be estimated, from the trusted examples and after a warm-up, t counts steps instead of
    epochs, and the networks' mean predicts.
    """

    remembers = ("partner", "noise_rate")

    def __init__(self, task: Task, settings: CoTeachingSettings) -> None:
        super().__init__(task, settings)
        self.partner = task.new_learner()
        self.partners = (self.partner,)
        self.noise_rate: float | None = settings.forget_rate

    def begin_epoch(
        self, progress: Progress, learner: Learner, settings: CoTeachingSettings, generator: torch.Generator
    ) -> None:
        """Estimate the noise rate after the warm-up, anew in each epoch in which the forgotten share still rises."""
        if settings.forget_rate is not None or warming_up(progress, settings.warm_up):
            return
        if self.noise_rate is None or progress.share <= settings.warm_up + settings.ramp:
            self.noise_rate = estimated_noise_rate((learner, self.partner), self.task)

    def step(
        self, learner: Learner, batch: Batch, settings: CoTeachingSettings, generator: torch.Generator
    ) -> StepResult:
        """Update each network with the other's choice."""
        inputs = learner.noisy_view(batch, generator)
        start = settings.warm_up if settings.forget_rate is None else 0.0
        share = 1 - (self.noise_rate or 0.0) * ramp(batch.progress, start, settings.ramp)
        return co_teach(learner, self.partner, inputs, batch.given_labels, round(share * len(inputs)))

    def deployed(self, module: nn.Module) -> nn.Module:
        """Return the mean of both networks."""
        return Ensemble(module, self.partner.network.module)


def estimated_noise_rate(learners: Sequence[Learner], task: Task) -> float:
    """Compare how often the mean prediction is the given label and, for the trusted examples, the true one."""
    return noise_rate_from_accuracy(
        agreement=_accuracy(learners, task.noisy_inputs, task.given_labels),
        accuracy=_accuracy(learners, task.trusted_inputs, task.trusted_labels),
        classes=task.classes,
    )


def _accuracy(learners: Sequence[Learner], inputs: Callable[[Tensor], Tensor], labels: Tensor) -> float:
    logits = [logits_at(one, inputs, torch.arange(len(labels))) for one in learners]
    return (log_mean_prediction(logits).argmax(dim=1) == labels).float().mean().item()


def co_teach(
    learner: Learner, partner: Learner, inputs: Tensor, labels: Tensor, kept: int, reported: int | None = None
) -> StepResult:
    """Descend the mean cross-entropy of the `kept` examples that the other network finds easiest, one at least.

    An example's weight is the share that it has in both updates: 0, half, or all of an equal share. The result is
    about the first `reported` examples, else about all.
    """
    kept = min(max(kept, 1), len(labels))
    logits = [one.network(inputs) for one in (learner, partner)]
    losses = [F.cross_entropy(z, labels, reduction="none") for z in logits]
    easy = [loss.detach().argsort(stable=True)[:kept] for loss in losses]
    own, others = losses[0][easy[1]].mean(), losses[1][easy[0]].mean()
    learner.update(own)
    partner.update(others)
    weights = torch.zeros_like(losses[0])
    for chosen in easy:
        weights[chosen] += 1 / (2 * kept)
    return StepResult(
        {"loss": own.detach(), "partner_loss": others.detach()},
        log_mean_prediction([z.detach() for z in logits])[:reported],
        weights=weights[:reported],
    )
