"""Early-learning regularisation (Liu et al. 2020): hold on to what the network predicted before it memorised."""

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.method import Method, Task
from karat.methods.settings import ElrSettings
from karat.methods.step import Batch, Learner, StepResult

SMALLEST = 1e-4  # of a probability, as in their released code: the logarithm of 1 − <p, t> stays finite


class EarlyLearning(Method):
    """Descend `mean −log p_given + λ·mean log(1 − <p, t>)`, t an average of the example's own predictions.

    `t <- β·t + (1−β)·p` each time the example is seen, from t = 0; no gradient flows through t. Uses no trusted
    examples. This is ELR; ELR+ of their paper adds a second network, weight averaging and mixup.
    """

    remembers = ("targets",)

    def __init__(self, task: Task, settings: ElrSettings) -> None:
        super().__init__(task, settings)
        self.targets = torch.zeros(len(task), task.classes)

    def step(self, learner: Learner, batch: Batch, settings: ElrSettings, generator: torch.Generator) -> StepResult:
        """Move the targets of the batch towards its predictions, then descend."""
        logits = learner.network(learner.noisy_view(batch, generator))
        probabilities = logits.softmax(dim=1).clamp(SMALLEST, 1 - SMALLEST)
        targets = self._remember(batch.rows, probabilities.detach(), settings.memory)
        plain = F.cross_entropy(logits, batch.given_labels)
        # <p, t> <= max(p) because t sums to 1 at most, so the clamp above keeps the logarithm finite.
        regulariser = (1 - (probabilities * targets.to(logits)).sum(dim=1)).log().mean()
        loss = plain + settings.weight * regulariser
        learner.update(loss)
        losses = {"loss": loss, "cross_entropy": plain, "regulariser": regulariser}
        return StepResult({name: value.detach() for name, value in losses.items()}, logits.detach())

    def _remember(self, rows: Tensor, probabilities: Tensor, memory: float) -> Tensor:
        latest = (probabilities / probabilities.sum(dim=1, keepdim=True)).to(self.targets)
        self.targets[rows] = memory * self.targets[rows] + (1 - memory) * latest
        return self.targets[rows]
