"""Karat: a network learns the verdict on the labels, and has a say in it where it has not learned them.

docs/method.md has the mathematics. Before the first step judges of what the inputs look like (`appearance.py`) give the
first verdict (`verdict.py`). For vectors that is all, and the network learns it; a linear one is not trained, but
fitted to it (`classifier.py`). For images there are two networks at first, each of which learns the verdict on one half
of the examples, and then judges the other half, whose labels it has not seen. The first of them goes on alone, and
learns the verdict by all judges on all examples.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy, one_hot
from karat.methods.karat.appearance import learn_appearance, of_length
from karat.methods.karat.classifier import SoftlyLabelled, fit_classifier
from karat.methods.karat.constants import CONSTANTS, Constants
from karat.methods.karat.folds import Labels, View
from karat.methods.karat.neighbours import smoothed
from karat.methods.karat.verdict import Hearing, Verdict, decide, hear
from karat.methods.method import Finished, Judgement, Method, Phase, Task, logits_at
from karat.methods.settings import KaratSettings
from karat.methods.shared.forest import Forest, WithTrees
from karat.methods.shared.mixup import mixed_with_others
from karat.methods.shared.soft_labels import sharpened
from karat.methods.step import Batch, Learner, StepResult


class Karat(Method):
    """Judge the labels, and let networks learn the verdict; those of images have a say in it."""

    remembers = ("seed", "hearing", "verdict", "forest", "halves", "partner", "noise_rate")
    partners_begin_alike = True

    def __init__(self, task: Task, settings: KaratSettings, constants: Constants = CONSTANTS) -> None:
        super().__init__(task, settings)
        self.constants = constants
        self.labels = Labels(task.given_labels, task.trusted_labels, task.classes)
        self.seed = 0  # of folds and halves: drawn before the first pass
        even = torch.full((len(task), task.classes), 1 / task.classes)
        self.verdict = Verdict(even, even, torch.eye(task.classes), even[0], torch.ones(1))
        self.hearing = Hearing(*(torch.empty(0) for _ in Hearing._fields))
        self.forest = Forest(*(torch.empty(0) for _ in Forest._fields))
        self.noise_rate = 0.0  # the share of wrong labels that was found
        self.halves = torch.empty(0, dtype=torch.long)  # of the noisy examples, while there are two networks
        self.partner: Learner | None = None
        if task.modality == "images":  # on tables a network is no better a judge than trees and heads (DECISIONS.md)
            self.partner = task.new_learner()
            self.partners = (self.partner,)

    def phases(self, settings: KaratSettings) -> tuple[Phase, ...]:
        """Return the phase of two networks, where there are two, and that of one."""
        network = self.constants.network
        if self.partner is None:
            return (Phase(1.0, rate=network.rate_of_vectors),)
        judging = [Phase(network.apart / settings.rounds, fresh=not number) for number in range(settings.rounds)]
        return (*judging, Phase(1 - network.apart, fresh=False, rate=network.rate_together))

    def begin_phase(
        self, number: int, learner: Learner, settings: KaratSettings, generator: torch.Generator
    ) -> Tensor | None:
        """Judge the labels, by what inputs look like at first, then by the networks, too."""
        if number == 0:
            self.look(generator)
            if self._is_fitted(learner):
                self._fit(learner.network.module)
            elif self.partner is not None:
                self.halves = torch.randperm(len(self.task), generator=self._generator()) % 2
        else:
            self._hear((learner, *self.partners))
        if number == settings.rounds:
            self.halves = torch.empty(0, dtype=torch.long)
        return None

    def look(self, generator: torch.Generator) -> None:
        """Judge the labels by what the inputs look like, which needs no network."""
        task, constants = self.task, self.constants.verdict
        self.seed = int(torch.randint(2**63 - 1, (), generator=generator))
        views, vectors = self._views(), None
        task.tell("judging their labels", 0.0)
        if task.modality == "vectors" and views[0].noisy.shape[1] <= constants.trees.longest_vector:
            read = (task.noisy_inputs, len(task)), (task.trusted_inputs, len(task.trusted_labels))
            vectors = View(*(inputs(torch.arange(count)).float().cpu() for inputs, count in read))
        self.hearing, forest = hear(views, vectors, self.labels, self._generator(), constants)
        self.forest = self.forest if forest is None else forest
        self._decide(None)
        task.tell("judging their labels", 1.0)

    def step(self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator) -> StepResult:
        """Descend the cross-entropy to the verdict on mixed views; a classifier that was fitted stays as it is."""
        if self._is_fitted(learner):
            return self._found(batch, {})
        if not len(self.halves):
            return self._learn(learner, batch, settings, generator)
        of = self.halves[batch.rows]
        results = [
            self._learn(one, _some(batch, of == half), settings, generator)
            for half, one in enumerate((learner, *self.partners))
            if (of == half).sum() > 1  # BatchNorm needs two
        ]
        return self._found(batch, results[0].losses)

    def _learn(self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator) -> StepResult:
        """Take one network's step."""
        targets = self.verdict.posterior[batch.rows].to(batch.noisy_inputs)
        weak = learner.augmentation.weak(batch.noisy_inputs, generator)
        views = {"weak": (weak, targets)}
        if len(self.halves):  # these steps are few: what is easy is learned sooner
            views["again"] = learner.augmentation.weak(batch.noisy_inputs, generator), targets
        else:
            strong = learner.augmentation.strong(weak, generator)
            views["strong"] = strong, sharpened(targets, settings.temperature)
        if len(batch.trusted_inputs):  # there need not be any
            verified = one_hot(batch.trusted_labels, learner.classes, like=targets)
            views["trusted"] = learner.augmentation.weak(batch.trusted_inputs, generator), verified
        inputs, wanted = (torch.cat(part) for part in zip(*views.values(), strict=True))
        concentration = 0.0 if len(self.halves) else settings.mixup * self.noise_rate
        if concentration > self.constants.least_mixup:
            inputs, wanted = mixed_with_others(inputs, wanted, concentration, generator, keep_first=True)
        losses = cross_entropy(wanted, log_probability(learner.network(inputs)))
        parts = losses.split([len(view) for view, _ in views.values()])
        terms = {name: part.mean() for name, part in zip(views, parts, strict=True)}
        loss = torch.stack([*terms.values()]).sum()
        learner.update(loss)
        return self._found(batch, {name: value.detach() for name, value in {"loss": loss, **terms}.items()})

    def _found(self, batch: Batch, losses: Mapping[str, Tensor]) -> StepResult:
        """Return what is known of the batch; mixed views have no logits: these are of judges that saw no label."""
        posterior = self.verdict.posterior[batch.rows].to(batch.noisy_inputs.device)
        return StepResult(
            losses,
            self.verdict.probabilities[batch.rows].clamp(min=1e-12).log().to(posterior),
            label_trust=posterior.gather(1, batch.given_labels[:, None]).squeeze(1),
            pseudo_labels=posterior,
        )

    def _is_fitted(self, learner: Learner) -> bool:
        return self.partner is None and isinstance(learner.network.module, nn.Linear)

    def _fit(self, classifier: nn.Module) -> None:
        """Fit a linear classifier to the verdict, in place."""
        task, posterior = self.task, self.verdict.posterior
        verified = one_hot(task.trusted_labels, task.classes, like=posterior)
        parts = [SoftlyLabelled(task.noisy_inputs, posterior), SoftlyLabelled(task.trusted_inputs, verified)]
        weight, bias = fit_classifier(parts, task.modality == "vectors", self.constants.classifier)
        with torch.no_grad():
            for name, values in (("weight", weight), ("bias", bias)):
                classifier.get_parameter(name).copy_(values)

    def finish(self, model: nn.Module) -> Finished:
        """Return the model, with the help of trees where there are some, and the verdict.

        The model as it is in the end has no part in the verdict: it has learned from every label.
        """
        verdict = self.verdict
        judgement = Judgement(
            verdict.probabilities, verdict.posterior, verdict.transition, verdict.rates, verdict.caution.item()
        )
        if not len(self.forest.votes):
            return Finished(model, judgement)
        return Finished(
            WithTrees(model, self.forest, verdict.transition, verdict.shares, verdict.mixture[-1].clone()), judgement
        )

    def _hear(self, pair: Sequence[Learner]) -> None:
        """Judge anew, with what each network says of the half that it has not learned."""
        said = torch.empty(len(self.task), self.task.classes)
        for half, learner in enumerate(pair):
            other = (self.halves != half).nonzero().flatten()
            said[other] = logits_at(learner, self.task.noisy_inputs, other)
        self._decide(said)

    def _decide(self, network: Tensor | None) -> None:
        """Take a new verdict."""
        self.verdict = decide(self.hearing, self.labels, network, self.constants.verdict)
        self.noise_rate = 1 - self.verdict.posterior.gather(1, self.labels.given[:, None]).mean().item()

    def _generator(self) -> torch.Generator:
        """Return the run's generator of folds and halves."""
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


def _some(batch: Batch, chosen: Tensor) -> Batch:
    """Return the batch with some of its noisy examples, and a share of the trusted ones for them."""
    trusted = math.ceil(len(batch.trusted_inputs) * chosen.float().mean().item())
    on_device = chosen.to(batch.noisy_inputs.device)
    return batch._replace(
        noisy_inputs=batch.noisy_inputs[on_device],
        given_labels=batch.given_labels[on_device],
        trusted_inputs=batch.trusted_inputs[:trusted],
        trusted_labels=batch.trusted_labels[:trusted],
        rows=batch.rows[chosen],
    )
