"""INCV (Chen et al. 2019): cross-validation selects examples with probably right labels, Co-teaching learns them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from karat.methods.co_teaching import co_teach
from karat.methods.method import Method, Phase, Task, logits_at
from karat.methods.settings import IncvSettings
from karat.methods.shared.agreement import noise_among_selected, noise_rate_from_agreement, removed_per_selected
from karat.methods.shared.ensemble import Ensemble
from karat.methods.shared.warm_up import ramp
from karat.methods.step import Batch, Learner, StepResult
from karat.methods.supervised import supervised

CANDIDATE, SELECTED, REMOVED = 0, 1, 2


class Incv(Method):
    """Select the held-out examples whose given label is predicted; then train two networks on the selected ones.

    Unlike in the paper the last weights of a half judge, not those with the best noisy accuracy, and the networks'
    mean predicts.
    """

    remembers = ("partner", "status", "verdict", "half", "noise_rate")

    def __init__(self, task: Task, settings: IncvSettings) -> None:
        super().__init__(task, settings)
        self.partner = task.new_learner()
        self.partners = (self.partner,)
        self.status = torch.full((len(task),), CANDIDATE)
        self.verdict = self.status.clone()  # becomes the status when both halves of a round are judged
        self.half = torch.zeros(len(task), dtype=torch.long)
        self.noise_rate = -1.0  # not known yet

    def phases(self, settings: IncvSettings) -> tuple[Phase, ...]:
        """Return two halves a round, and the rest."""
        folds = 2 * settings.rounds
        return (*[Phase(settings.fold_share)] * folds, Phase(1 - folds * settings.fold_share))

    def begin_phase(
        self, number: int, learner: Learner, settings: IncvSettings, generator: torch.Generator
    ) -> Tensor | None:
        """Judge the half that the network was not trained on; return the rows of the next training."""
        if number > 0:
            self._judge(1 - (number - 1) % 2, learner, settings)
        if number % 2 == 0:
            self.status = self.verdict.clone()
            self.half = self._halves(generator)
        rows = self.status == SELECTED
        if number < 2 * settings.rounds:
            rows = rows | ((self.status == CANDIDATE) & (self.half == number % 2))
        if not rows.any():  # nothing selected: all that is left is to believe every label
            self.status = self.verdict = torch.full_like(self.status, SELECTED)
            return None
        return rows.nonzero().flatten()

    def step(self, learner: Learner, batch: Batch, settings: IncvSettings, generator: torch.Generator) -> StepResult:
        """Train plainly on a half, or both networks on the selected examples and, later, the candidates."""
        inputs, labels, count = batch.noisy_inputs, batch.given_labels, len(batch.rows)
        if batch.progress.phase < 2 * settings.rounds:
            plain = supervised(learner, batch, None, generator)
            return plain._replace(weights=torch.full((count,), 1 / count, device=inputs.device))
        rows = self._some_candidates(count, generator)
        if len(rows) > 0 and batch.progress.share >= settings.candidates_after:
            inputs = torch.cat([inputs, self.task.noisy_inputs(rows).to(inputs)])
            labels = torch.cat([labels, self.task.given_labels[rows].to(labels)])
        forgotten = noise_among_selected(self.noise_rate, self.task.classes) * ramp(batch.progress, 0.0, settings.ramp)
        weak = learner.augmentation.weak(inputs, generator)
        return co_teach(learner, self.partner, weak, labels, round((1 - forgotten) * count), reported=count)

    def deployed(self, module: nn.Module) -> nn.Module:
        """Return the mean of both networks."""
        return Ensemble(module, self.partner.network.module)

    def _halves(self, generator: torch.Generator) -> Tensor:
        shuffled = torch.randperm(len(self.task), generator=generator)
        candidates = shuffled[self.status[shuffled] == CANDIDATE]
        half = torch.zeros_like(self.half)
        half[candidates[len(candidates) // 2 :]] = 1
        return half

    def _judge(self, held_out: int, learner: Learner, settings: IncvSettings) -> None:
        rows = ((self.status == CANDIDATE) & (self.half == held_out)).nonzero().flatten()
        if len(rows) == 0:
            return
        logits, labels = logits_at(learner, self.task.noisy_inputs, rows), self.task.given_labels[rows]
        agree = logits.argmax(dim=1) == labels
        if self.noise_rate < 0:
            self.noise_rate = noise_rate_from_agreement(agree.float().mean().item(), self.task.classes)
        if settings.remove:
            count = int(removed_per_selected(self.noise_rate) * int(agree.sum()))
            losses = F.cross_entropy(logits, labels, reduction="none")
            self.verdict[rows[losses.argsort(descending=True, stable=True)[:count]]] = REMOVED
        self.verdict[rows[agree]] = SELECTED

    def _some_candidates(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw `count·|C|/|S|` candidates, but at most half of `count`."""
        candidates = (self.status == CANDIDATE).nonzero().flatten()
        selected = int((self.status == SELECTED).sum())
        some = min(count * len(candidates) // selected, count // 2)
        return candidates[torch.randint(max(len(candidates), 1), (some,), generator=generator)]
