"""CleanNet-style weights (Lee et al. 2018): an example counts by its likeness to the trusted ones of its class."""

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.method import Method, Task
from karat.methods.settings import CleanNetSettings
from karat.methods.shared.last_layer import features_at
from karat.methods.step import Batch, Learner, Progress, StepResult


def prototype_weights(features: Tensor, labels: Tensor, trusted: Tensor, trusted_labels: Tensor) -> Tensor:
    """Return `max(0, cos(f_i − f̄, μ_{y_i}))`, μ_c the mean of the trusted features of class c minus f̄.

    f̄ is the mean of the noisy features: after a ReLU no feature is below 0, and no two of them would be dissimilar.

    >>> features, trusted = torch.tensor([[3.0, 1.0], [1.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 4.0]])
    >>> prototype_weights(features, torch.tensor([0, 0]), trusted, torch.tensor([0, 1]))
    tensor([1.0000, 0.0000])
    """
    centre = features.mean(dim=0)
    member = F.one_hot(trusted_labels, int(max(labels.max(), trusted_labels.max())) + 1).to(features)
    means = member.T @ trusted / member.sum(dim=0).clamp(min=1)[:, None]
    return F.cosine_similarity(features - centre, (means - centre)[labels]).clamp(min=0)


class CleanNet(Method):
    """Descend `Σ ω_i L(y_i, z_i)`, ω the weights of `prototype_weights` at the start of the epoch divided by their sum.

    The paper learns a second network that embeds examples and classes; here the similarity is measured in the features
    of the classifier itself, which is trained on noisy examples only.
    """

    remembers = ("similarity",)

    def __init__(self, task: Task, settings: CleanNetSettings) -> None:
        super().__init__(task, settings)
        self.similarity = torch.ones(len(task))

    def begin_epoch(
        self, progress: Progress, learner: Learner, settings: CleanNetSettings, generator: torch.Generator
    ) -> None:
        """Compare all noisy examples with the trusted ones, once the warm-up is over."""
        if progress.share >= settings.warm_up:
            features = features_at(learner, self.task.noisy_inputs, torch.arange(len(self.task)))
            self.similarity = prototype_weights(
                features,
                self.task.given_labels,
                features_at(learner, self.task.trusted_inputs, torch.arange(len(self.task.trusted_labels))),
                self.task.trusted_labels,
            )

    def step(
        self, learner: Learner, batch: Batch, settings: CleanNetSettings, generator: torch.Generator
    ) -> StepResult:
        """Take one weighted step."""
        logits = learner.network(learner.noisy_view(batch, generator))
        similarity = self.similarity[batch.rows].to(logits)
        # A batch without any similar example teaches nothing: its weights are 0, not NaN.
        weights = similarity / similarity.sum().clamp(min=torch.finfo(similarity.dtype).tiny)
        loss = (weights * F.cross_entropy(logits, batch.given_labels, reduction="none")).sum()
        learner.update(loss)
        return StepResult({"loss": loss.detach()}, logits.detach(), weights=weights)
