"""Karat: the network learns posteriors of the true class, which a label model reads off all labels at once.

docs/method.md has the mathematics. Before the first step a judge (`judge.py`) of what the inputs look like
(`appearance.py`) gives the first posteriors. From then on, in turns: the network learns them, on weak and strong views
mixed with trusted examples; a second judge is fitted to the features of the averaged network, and the label model
(`label_model.py`) weighs both and gives new posteriors. In the end the second judge's head becomes the last layer.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from karat.algorithm.network import evaluation_mode
from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy, one_hot
from karat.errors import UserError
from karat.methods.karat.appearance import learn_appearance, of_length
from karat.methods.karat.constants import CONSTANTS, Constants
from karat.methods.karat.judge import Evidence, Judge, fit_judge
from karat.methods.karat.label_model import LabelModel, first_transition, fit_label_model
from karat.methods.karat.neighbours import smoothed
from karat.methods.karat.verdict import Labels, Verdict, View, fit_verdict
from karat.methods.method import Finished, Judgement, Method, Phase, Task
from karat.methods.shared.last_layer import Hidden, hidden
from karat.methods.shared.mixup import mixed_with_others
from karat.methods.shared.soft_labels import sharpened
from karat.methods.step import Batch, Learner, Progress, StepResult


@dataclass(frozen=True)
class KaratSettings:
    """Choices of Karat.

    Attributes:
        refits: how often the label model is fitted over the run, at most once a pass; vectors have one fit.
        temperature: below 1 sharpens the posteriors that strong views learn.
        mixup: mixup factors are drawn from Beta(a, a) with a this many times the share of wrong labels that the label
            model found: right labels need no mixing; 0 mixes nothing.
    """

    refits: int = 30
    temperature: float = 0.5
    mixup: float = 1.0

    def __post_init__(self) -> None:
        if self.refits < 1:
            raise UserError(f"methods.karat.refits is {self.refits}: write 1 or more.")
        if not self.temperature > 0:
            raise UserError(f"methods.karat.temperature is {self.temperature}: write a number above 0.")
        if not self.mixup >= 0:
            raise UserError(f"methods.karat.mixup is {self.mixup}: write 0 or more.")


class Karat(Method):
    """Alternate between a label model on all labels and a network that learns its posteriors."""

    remembers = ("seed", "appearance_logits", "transition", "probabilities", "posterior", "noise_rate", "verdict")

    def __init__(self, task: Task, settings: KaratSettings, constants: Constants = CONSTANTS) -> None:
        super().__init__(task, settings)
        self.constants = constants
        self.seed = 0  # of all fits: drawn before the first pass
        self.transition = first_transition(task.classes, constants)
        self.probabilities = torch.full((len(task), task.classes), 1 / task.classes)
        self.posterior = self.probabilities.clone()
        self.noise_rate = 0.0  # the share of wrong labels that the label model found
        self.appearance_logits = torch.empty(0, task.classes)
        self.verdict = Verdict(self.probabilities, self.posterior, self.transition)
        # A network's features learn the labels that its judge then judges. On tables that costs more than it brings
        # (accuracy on nine, one seed each: 64.2% with it, 67.3 without, in 0.4 of the time; DECISIONS.md).
        self.network_judges = task.modality != "vectors"

    def phases(self, settings: KaratSettings) -> tuple[Phase, ...]:
        """Return the one phase, at a rate of its own."""
        return (Phase(1.0, rate=self.constants.rate),)

    def begin_epoch(
        self, progress: Progress, learner: Learner, settings: KaratSettings, generator: torch.Generator
    ) -> None:
        """Fit the label model anew where it is due."""
        if progress.epoch == 0:
            self.seed = int(torch.randint(2**63 - 1, (), generator=generator))
            views = self._views()
            self.verdict = self._judged(views)
            self._learn(self._by_appearance(views) if self.network_judges else self.verdict)
            self.task.tell("judging their labels", 1.0)
        elif self.network_judges and refit_due(progress, settings):
            found, _ = self._by_both(self.task.averaged() if self.task.averaged else learner.network.module)
            self._learn(found)

    def step(self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator) -> StepResult:
        """Descend the cross-entropy to the posteriors on mixed views."""
        weak = learner.augmentation.weak(batch.noisy_inputs, generator)
        strong = learner.augmentation.strong(weak, generator)
        trusted = learner.augmentation.weak(batch.trusted_inputs, generator)
        inputs, sizes = torch.cat([weak, strong, trusted]), [len(weak), len(strong), len(trusted)]
        posterior = self.posterior[batch.rows].to(weak)
        verified = one_hot(batch.trusted_labels, learner.classes, like=posterior)
        targets = torch.cat([posterior, sharpened(posterior, settings.temperature), verified])
        concentration = settings.mixup * self.noise_rate
        if concentration > self.constants.least_mixup:
            inputs, targets = mixed_with_others(inputs, targets, concentration, generator, keep_first=True)
        losses = cross_entropy(targets, log_probability(learner.network(inputs))).split(sizes)
        weak_loss, strong_loss, trusted_loss = (part.mean() for part in losses)
        loss = weak_loss + strong_loss + trusted_loss
        learner.update(loss)
        found = {"loss": loss, "weak": weak_loss, "strong": strong_loss, "trusted": trusted_loss}
        return StepResult(
            {name: value.detach() for name, value in found.items()},
            # Mixed views have no logits of their own; these are of heads that never saw the label.
            self.probabilities[batch.rows].clamp(min=1e-12).log().to(weak),
            label_trust=posterior.gather(1, batch.given_labels[:, None]).squeeze(1),
            pseudo_labels=posterior,
        )

    def finish(self, model: nn.Module) -> Finished:
        """Return the model with its judge's head as the last layer, and the verdict of `verdict.py`.

        The network has no part in the verdict: it has learned from every label that there is to judge.
        """
        judgement = Judgement(*self.verdict)
        if not self.network_judges:
            return Finished(model, judgement)
        _, judge = self._by_both(model)
        return Finished(
            with_head(model, self.task.trusted_inputs(torch.arange(1)), judge.weight, judge.bias), judgement
        )

    def _learn(self, found: LabelModel | Verdict) -> None:
        """Take what the next steps learn."""
        self.transition, self.probabilities, self.posterior = found.transition, found.probabilities, found.posterior
        self.noise_rate = 1 - found.posterior.gather(1, self.task.given_labels[:, None]).mean().item()

    def _generator(self) -> torch.Generator:
        """Return the run's generator of fits: all deal the same folds, and those of another run deal others."""
        return torch.Generator().manual_seed(self.seed)

    def _views(self) -> list[View]:
        """Describe what the inputs look like, with close neighbours and with whole clusters."""
        task, constants = self.task, self.constants
        generator = self._generator()
        appearance = learn_appearance(
            task.noisy_inputs, len(task), task.modality, generator, task.mirrored, constants.appearance
        )
        noisy = appearance.features(task.noisy_inputs, len(task), partial(task.tell, "looking at the inputs"))
        trusted = appearance.features(task.trusted_inputs, len(task.trusted_labels))
        return [
            View(*of_length(version, constants.appearance.length).split([len(noisy), len(trusted)]))
            for version in smoothed(torch.cat([noisy, trusted]), generator, constants.neighbours)
        ]

    def _by_appearance(self, views: Sequence[View]) -> LabelModel:
        """Fit the label model to what the inputs look like; remember that for all later fits."""
        task, constants = self.task, self.constants
        judges: list[Judge] = []
        for view in views:
            task.tell("judging their labels", (1 + len(judges)) / (1 + len(views)))
            evidence = Evidence(view.noisy, task.given_labels, view.trusted, task.trusted_labels)
            judges.append(fit_judge(evidence, self.transition, None, self._generator(), constants))
        found = fit_label_model(judges, task.given_labels, task.trusted_labels, constants)
        self.appearance_logits = found.logits
        return found

    def _judged(self, views: Sequence[View]) -> Verdict:
        """Return the verdict on the labels, by what the inputs look like and by trees on short vectors."""
        task, constants, vectors = self.task, self.constants.verdict, None
        task.tell("judging their labels", 0.0)
        if task.modality == "vectors" and task.noisy_inputs(torch.arange(1)).shape[1] <= constants.longest_vector:
            read = (task.noisy_inputs, len(task)), (task.trusted_inputs, len(task.trusted_labels))
            vectors = View(*(inputs(torch.arange(count)).float().cpu() for inputs, count in read))
        labels = Labels(task.given_labels, task.trusted_labels, task.classes)
        return fit_verdict(views, vectors, labels, self._generator(), constants)

    def _by_both(self, model: nn.Module) -> tuple[LabelModel, Judge]:
        """Fit the label model to the network's features and to appearance; return also the judge of the former."""
        task = self.task
        noisy, head = _features(model, task.noisy_inputs, torch.arange(len(task)))
        trusted, _ = _features(model, task.trusted_inputs, torch.arange(len(task.trusted_labels)))
        evidence = Evidence(noisy, task.given_labels, trusted, task.trusted_labels)
        judge = fit_judge(evidence, self.transition, head, self._generator(), self.constants)
        judges = [judge, judge._replace(logits=self.appearance_logits)]
        return fit_label_model(judges, task.given_labels, task.trusted_labels, self.constants), judge


def refit_due(progress: Progress, settings: KaratSettings) -> bool:
    """Return whether the label model is fitted before this pass.

    >>> epochs = [Progress(step=10 * epoch, total_steps=200, steps_per_epoch=10) for epoch in range(20)]
    >>> [progress.epoch for progress in epochs if refit_due(progress, KaratSettings(refits=6))]
    [0, 4, 8, 12, 16]
    """
    epochs = math.ceil(progress.total_steps / progress.steps_per_epoch)
    return progress.epoch % math.ceil(epochs / settings.refits) == 0


def with_head(model: nn.Module, inputs: Tensor, weight: Tensor, bias: Tensor) -> nn.Module:
    """Return a copy of the model with another last layer; a model that has none to replace stays as it is."""
    copied = deepcopy(model)
    with evaluation_mode(copied):
        head = _last_layer(copied, inputs)
    if head is not None:
        with torch.no_grad():
            head.head.weight.copy_(weight)
            head.head.bias.copy_(bias)
    return copied


def _last_layer(model: nn.Module, inputs: Tensor) -> Hidden | None:
    """Return the last linear layer; None where the network goes on after it, or it has no bias, or there is none."""
    try:
        found = hidden(model, inputs)
    except UserError:
        return None
    return found if found.head_output is found.logits and found.head.bias is not None else None


def _features(
    model: nn.Module, inputs: Callable[[Tensor], Tensor], rows: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return the features of the un-augmented inputs at these rows, and the layer that makes logits of them.

    The features of a network without a last layer to replace are its logits, and the layer is the identity.
    """
    parts: list[Tensor] = []
    head: tuple[Tensor, Tensor] | None = None
    with evaluation_mode(model):
        for part in rows.split(512):
            batch = inputs(part)
            found = _last_layer(model, batch)
            if found is None:
                parts.append(model(batch).float().cpu())
                continue
            head = found.head.weight.detach().float().cpu(), found.head.bias.detach().float().cpu()
            parts.append(found.features.float().cpu())
    features = torch.cat(parts)
    classes = features.shape[1]
    return features, head if head is not None else (torch.eye(classes), torch.zeros(classes))
