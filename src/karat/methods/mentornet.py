"""MentorNet (Jiang et al. 2018): a small network learns from losses which labels to believe."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from karat.algorithm.network import Network
from karat.methods.method import Method, Task
from karat.methods.settings import MentorNetSettings
from karat.methods.step import Batch, Learner, StepResult


class Mentor(nn.Module):
    """Return the logit of the weight v from columns: loss, loss minus moving percentile, share of the run, label."""

    def __init__(self, classes: int, embedding: int = 2, width: int = 20) -> None:
        super().__init__()
        self.label = nn.Embedding(classes, embedding)
        self.layers = nn.Sequential(nn.Linear(3 + embedding, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, observed: Tensor) -> Tensor:
        """Return one logit for every row."""
        return self.layers(torch.cat([observed[:, :3], self.label(observed[:, 3].long())], dim=1)).squeeze(1)


class _Unused:
    def weak(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        return inputs

    def strong(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        return inputs

    def close_up(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        return inputs


def other_labels(labels: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """Draw for each label another one, all others being equally likely."""
    return (labels + torch.randint(1, classes, labels.shape, generator=generator).to(labels.device)) % classes


class MentorNet(Method):
    """Descend `1/B·Σ v_i L(y_i, z_i)`; the mentor gives v ∈ (0, 1) and learns on the trusted batch at every step.

    There the right labels are the believable ones, and random other labels of the same examples the unbelievable ones:
    this stands in for the paper's second data set with known noise. The mentor is a multilayer perceptron over the
    present loss instead of an LSTM over a short history, and the share of the run enters as a number: embedded, the
    share that comes next would always be untrained.

    All losses come from passes in training mode, so BatchNorm and dropout treat trusted and noisy examples alike. The
    student never trains on trusted examples: a wrong label that it has learned by heart looks right to the mentor.
    """

    remembers = ("mentor", "percentile_loss")

    def __init__(self, task: Task, settings: MentorNetSettings) -> None:
        super().__init__(task, settings)
        mentor = Mentor(task.classes)
        optimizer = torch.optim.Adam(mentor.parameters(), lr=settings.rate)
        self.mentor = Learner(Network(mentor), optimizer, _Unused(), task.classes)
        self.percentile_loss = -1.0  # none yet

    def step(
        self, learner: Learner, batch: Batch, settings: MentorNetSettings, generator: torch.Generator
    ) -> StepResult:
        """Weight the noisy examples, take the student's step, then the mentor's."""
        # Both passes see the same student, and `at` leaves BatchNorm's statistics to the noisy one.
        trusted_inputs = learner.augmentation.weak(batch.trusted_inputs, generator)
        with torch.no_grad():
            trusted_logits = learner.network.at(learner.network.trainable(), trusted_inputs)
        logits = learner.network(learner.noisy_view(batch, generator))
        losses = F.cross_entropy(logits, batch.given_labels, reduction="none")
        self._follow(losses.detach(), settings)

        share = batch.progress.share
        weights = torch.ones_like(losses)
        if share >= settings.burn_in:
            with torch.no_grad():
                observed = self._observed(losses.detach(), batch.given_labels, share)
                weights = self.mentor.network(observed).sigmoid().to(losses)
        loss = (weights * losses).mean()
        learner.update(loss)

        mentor_loss = self._teach_mentor(trusted_logits, batch.trusted_labels, share, generator)
        return StepResult(
            {"loss": loss.detach(), "mentor": mentor_loss}, logits.detach(), weights=weights / len(weights)
        )

    def _follow(self, losses: Tensor, settings: MentorNetSettings) -> None:
        found = losses.float().quantile(settings.percentile).item()
        decay = settings.percentile_decay if self.percentile_loss >= 0 else 0.0
        self.percentile_loss = decay * self.percentile_loss + (1 - decay) * found

    def _observed(self, losses: Tensor, labels: Tensor, share: float) -> Tensor:
        # The mentor stays on the CPU: its matrices are too small for anything else.
        losses, labels = losses.float().cpu(), labels.float().cpu()
        return torch.stack([losses, losses - self.percentile_loss, torch.full_like(losses, share), labels], dim=1)

    def _teach_mentor(self, logits: Tensor, labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
        shown = torch.cat([labels, other_labels(labels, self.task.classes, generator)])
        losses = F.cross_entropy(logits.repeat(2, 1), shown, reduction="none")
        believable = torch.cat([torch.ones(len(labels)), torch.zeros(len(labels))])
        answers = self.mentor.network(self._observed(losses, shown, share))
        loss = F.binary_cross_entropy_with_logits(answers, believable)
        self.mentor.update(loss)
        return loss.detach()
