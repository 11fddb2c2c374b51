"""Karat: a network learns the verdict on the labels, and has a say in it where it has not learned them.

docs/method.md has the mathematics. Before the first step judges of what the inputs look like (`appearance.py`) give the
first verdict (`verdict.py`). For vectors that is all, and the network learns it; a linear one is not trained, but
fitted to it (`classifier.py`). For images there are two networks at first, each of which learns the verdict on one half
of the examples, and then judges the other half, whose labels it has not seen. The first of them goes on alone, and
learns the verdict by all judges on all examples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from scipy.sparse import vstack
from torch import Tensor, nn

from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy, one_hot
from karat.methods.karat.classifier import SoftlyLabelled, fit_classifier, fit_sparse_classifier
from karat.methods.karat.constants import CONSTANTS, ClassifierConstants, Constants
from karat.methods.karat.folds import Labels, View, deal
from karat.methods.karat.heads import Judged
from karat.methods.karat.hearing import Hearing, hear, with_judge
from karat.methods.karat.hypotheses import is_even
from karat.methods.karat.own_scale import OwnScale, own_scale
from karat.methods.karat.verdict import Verdict, decide
from karat.methods.karat.views import look_at
from karat.methods.method import Finished, Judgement, Method, Phase, Task, logits_at
from karat.methods.settings import KaratSettings
from karat.methods.shared.forest import Forest, WithTrees
from karat.methods.shared.mixup import mixed_with_others
from karat.methods.shared.soft_labels import sharpened
from karat.methods.step import Batch, Learner, Progress, StepResult


class Karat(Method):
    """Judge the labels, and let networks learn the verdict; those of images have a say in it."""

    remembers = ("seed", "hearing", "verdict", "forest", "halves", "is_literal", "partner", "noise_rate")
    partners_begin_alike = True

    def __init__(self, task: Task, settings: KaratSettings, constants: Constants = CONSTANTS) -> None:
        super().__init__(task, settings)
        self.constants = constants
        self.labels = Labels(task.given_labels, task.trusted_labels, task.classes)
        self.seed = 0  # of folds and halves: drawn before the first pass
        self.own_scale: OwnScale | None = None  # of long vectors
        even = torch.full((len(task), task.classes), 1 / task.classes)
        self.verdict = Verdict(even, even, torch.eye(task.classes), even[0], torch.ones(1))
        self.hearing = Hearing(*(torch.empty(0) for _ in Hearing._fields))
        self.forest = Forest(*(torch.empty(0) for _ in Forest._fields))
        self.noise_rate = 0.0  # the share of wrong labels that was found
        self.halves = torch.empty(0, dtype=torch.long)  # of the noisy examples, while there are two networks
        self.is_literal = False  # whether the two networks predict given labels
        self.partner: Learner | None = None
        if task.modality == "images":  # on tables a network is no better a judge than trees and heads (DECISIONS.md)
            self.partner = task.new_learner()
            self.partners = (self.partner,)
            self.trusted_share = self.constants.network.trusted_share

    def phases(self, settings: KaratSettings) -> tuple[Phase, ...]:
        """Return the phase of two networks, where there are two, and that of one."""
        network = self.constants.network
        if self.partner is None:
            return (Phase(1.0, rate=network.rate_of_vectors),)
        first = Phase(
            network.apart / settings.rounds, most_steps=network.most_steps_apart, most_epochs=network.most_epochs_apart
        )
        judging = [first._replace(fresh=not number) for number in range(settings.rounds)]
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
                self.is_literal = not is_even(self.verdict.transition, self.verdict.shares, self.constants.network.even)
        elif self.is_literal:
            self._hear_given((learner, *self.partners))
        else:
            self._hear((learner, *self.partners))
        if number == settings.rounds:
            self.halves = torch.empty(0, dtype=torch.long)
        return None

    def look(self, generator: torch.Generator) -> None:
        """Judge the labels by what the inputs look like, which needs no network."""
        task, constants = self.task, self.constants.verdict
        self.seed = int(torch.randint(2**63 - 1, (), generator=generator))
        generator, vectors = self._generator(), None
        folds = deal(self.labels, generator, constants)
        self.own_scale = own_scale(task, self._generator(), self.constants.scale, self.constants.classifier)
        seen = task if self.own_scale is None else self.own_scale.seen_in(task)
        views, looks = look_at(seen, folds.learned, self._generator(), self.constants)
        others = looks.others(seen, folds.others, constants.others)
        task.tell("judging their labels", 0.0)
        if seen.modality == "vectors" and views[0].noisy.shape[1] <= constants.trees.longest_vector:
            read = (task.noisy_inputs, len(task)), (task.trusted_inputs, len(task.trusted_labels))
            vectors = View(*(inputs(torch.arange(count)).float().cpu() for inputs, count in read))
        self.hearing, forest = hear(views, vectors, self.labels, folds, generator, others, constants)
        self.forest = self.forest if forest is None else forest
        self._decide(None)
        task.tell("judging their labels", 1.0)

    def step(self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator) -> StepResult:
        """Descend the cross-entropy to the verdict on mixed views; a classifier that was fitted stays as it is."""
        if self._is_fitted(learner):
            return self._found(batch, {})
        if self.partner is None:
            return self._learn(learner, batch, settings, generator)
        if not len(self.halves):
            return self._learn_together(learner, batch, settings, generator)
        of = self.halves[batch.rows]
        learn = self._learn_given if self.is_literal else self._learn_apart
        results = [learn(one, batch, of == half, generator) for half, one in enumerate((learner, *self.partners))]
        return results[0]

    def _learn_apart(self, learner: Learner, batch: Batch, own: Tensor, generator: torch.Generator) -> StepResult:
        """Take the step of one of two networks, to which the given labels of its `own` rows are known.

        One weak view: these steps are few, and what is easy is learned sooner.
        """
        network = self.constants.network
        weak, trusted = learner.noisy_view(batch, generator), _trusted(learner, batch, generator)
        logits = learner.network(torch.cat([weak, *(view for view, _ in trusted.values())]))
        said = logits[: len(batch.rows)].detach().softmax(dim=1)
        wanted = self._wanted(batch, own[:, None], said, network.own_share * _ramp(batch.progress))
        targets = {"weak": sharpened(wanted, network.temperature)}
        targets |= {name: verified for name, (_, verified) in trusted.items()}
        return self._descend(learner, batch, logits, targets, {name: len(part) for name, part in targets.items()})

    def _learn_given(self, learner: Learner, batch: Batch, own: Tensor, generator: torch.Generator) -> StepResult:
        """Take the step of one of two networks that learns to predict the given labels, by its `own` rows.

        Such a network knows nothing of T, so that it can tell what T is.
        """
        rows = own.nonzero().flatten().to(batch.noisy_inputs.device)
        if len(rows) < 2:  # one is too few for BatchNorm
            return self._found(batch, {})
        logits = learner.network(learner.noisy_view(batch, generator)[rows])
        targets = {"weak": one_hot(batch.given_labels[rows], learner.classes, like=batch.noisy_inputs)}
        return self._descend(learner, batch, logits, targets, {"weak": 1.0})

    def _learn_together(
        self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator
    ) -> StepResult:
        """Take the step of the network that goes on alone, to which all labels are known, on mixed views.

        Two weak views, mirrored either way. What it learns is what it predicts itself, in a pass of its own, and what
        the label says of that: so the label is not held up by what weaker judges say.
        """
        network, others = self.constants.network, None if batch.mirrored is None else ~batch.mirrored
        weak = learner.noisy_view(batch, generator)
        with torch.no_grad():
            said = learner.network(weak).softmax(dim=1)
        share = network.own_share_together * _ramp_together(batch.progress)
        wanted = sharpened(self._wanted(batch, torch.ones(()).bool(), said, share), network.temperature_together)
        again = learner.augmentation.weak(batch.noisy_inputs, generator, others)
        views = {"weak": (weak, wanted), "again": (again, wanted), **_trusted(learner, batch, generator)}
        inputs, targets = (torch.cat(part) for part in zip(*views.values(), strict=True))
        inputs, targets = self._mixed(inputs, targets, settings, generator)
        parts = dict(zip(views, targets.split([len(view) for view, _ in views.values()]), strict=True))
        often = network.trusted_repeated * len(self.task.trusted_labels) / len(self.task)
        weights = {name: min(often, 1.0) if name == "trusted" else 1.0 for name in views}
        return self._descend(learner, batch, learner.network(inputs), parts, weights)

    def _descend(
        self,
        learner: Learner,
        batch: Batch,
        logits: Tensor,
        targets: Mapping[str, Tensor],
        weights: Mapping[str, float],
    ) -> StepResult:
        """Take a step down the cross-entropy to the targets of the views, in their order, by their weights."""
        losses = cross_entropy(torch.cat([*targets.values()]), log_probability(logits))
        parts = losses.split([len(part) for part in targets.values()])
        terms = {name: part.mean() for name, part in zip(targets, parts, strict=True)}
        loss = torch.stack([weights[name] * term for name, term in terms.items()]).sum() / sum(weights.values())
        learner.update(loss)
        return self._found(batch, {name: value.detach() for name, value in {"loss": loss, **terms}.items()})

    def _wanted(self, batch: Batch, own: Tensor, said: Tensor, share: float) -> Tensor:
        """Return the posteriors of the own rows, and of others what is known without their labels.

        The network's own predictions have this share in either, in the exponent.
        """
        p, q = self.verdict.probabilities[batch.rows].clamp(min=1e-12), self.verdict.posterior[batch.rows]
        known = (p ** (1 - share) * torch.where(own, q / p, torch.ones(()))).to(said)
        together = known * said**share
        return together / together.sum(dim=1, keepdim=True).clamp(min=1e-12)

    def _mixed(
        self, inputs: Tensor, targets: Tensor, settings: KaratSettings, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Mix inputs and targets with each other, the more labels are wrong; right labels need no mixing."""
        concentration = settings.mixup * self.noise_rate
        if concentration <= self.constants.least_mixup:
            return inputs, targets
        return mixed_with_others(inputs, targets, concentration, generator, keep_first=True)

    def _learn(self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator) -> StepResult:
        """Take the step of a network of vectors, which learns the posteriors, on mixed views."""
        targets = self.verdict.posterior[batch.rows].to(batch.noisy_inputs)
        weak = learner.augmentation.weak(batch.noisy_inputs, generator)
        strong = learner.augmentation.strong(weak, generator)
        views = {"weak": (weak, targets), "strong": (strong, sharpened(targets, settings.temperature))}
        views |= _trusted(learner, batch, generator)
        inputs, wanted = (torch.cat(part) for part in zip(*views.values(), strict=True))
        inputs, wanted = self._mixed(inputs, wanted, settings, generator)
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
        task, constants = self.task, self.constants.classifier
        verified = one_hot(task.trusted_labels, task.classes, like=self.verdict.posterior)
        if task.terms is None:
            own, reads = self.own_scale, (task.noisy_inputs, task.trusted_inputs)
            reads = reads if own is None else (own.not_standardised(reads[0]), own.not_standardised(reads[1]))
            parts = [SoftlyLabelled(reads[0], self.verdict.posterior), SoftlyLabelled(reads[1], verified)]
            weight, bias = fit_classifier(parts, own is None and task.modality == "vectors", constants)
            weight = weight if own is None else weight * own.deviation
        else:
            noisy, trusted = task.terms
            self._hear_terms(noisy, trusted, verified)
            weight, bias = _of_terms(noisy, trusted, self.verdict.posterior, verified, constants)
        with torch.no_grad():
            for name, values in (("weight", weight), ("bias", bias)):
                classifier.get_parameter(name).copy_(values)

    def _hear_terms(self, noisy: Any, trusted: Any, verified: Tensor) -> None:
        """Judge texts anew, with what classifiers of all terms say of those whose verdict they have not learned."""
        constants, said = self.constants.classifier, torch.empty(len(self.task), self.task.classes)
        short = replace(constants, iterations=constants.iterations_of_parts)
        parts = torch.randperm(len(said), generator=self._generator()) % constants.parts
        for part in parts.unique():
            learned, judged = ((parts == part) == own for own in (False, True))
            rows = noisy[learned.numpy()]
            weight, bias = _of_terms(rows, trusted, self.verdict.posterior[learned], verified, short)
            said[judged] = torch.from_numpy(noisy[judged.numpy()] @ weight.T.numpy()) + bias
            self.task.tell("judging their terms", (int(part) + 1) / constants.parts)
        self._decide(said, network_weighs=False)

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

    def _hear_given(self, pair: Sequence[Learner]) -> None:
        """Judge anew, with networks that predict given labels: of noisy examples those of the other half."""
        noisy = torch.empty(len(self.task), self.task.classes)
        trusted = torch.zeros(len(self.labels.trusted), self.task.classes)
        for half, learner in enumerate(pair):
            other = (self.halves != half).nonzero().flatten()
            noisy[other] = logits_at(learner, self.task.noisy_inputs, other).softmax(dim=1)
            if len(trusted):
                rows = torch.arange(len(trusted))
                trusted += logits_at(learner, self.task.trusted_inputs, rows).softmax(dim=1) / len(pair)
        self.hearing = with_judge(self.hearing, Judged(noisy, trusted))
        self._decide(None)

    def _decide(self, network: Tensor | None, network_weighs: bool = True) -> None:
        """Take a new verdict."""
        self.verdict = decide(self.hearing, self.labels, network, self.constants.verdict, network_weighs=network_weighs)
        self.noise_rate = 1 - self.verdict.posterior.gather(1, self.labels.given[:, None]).mean().item()

    def _generator(self) -> torch.Generator:
        """Return the run's generator of folds and halves."""
        return torch.Generator().manual_seed(self.seed)


def _of_terms(
    noisy: Any, trusted: Any, posterior: Tensor, verified: Tensor, constants: ClassifierConstants
) -> tuple[Tensor, Tensor]:
    """Fit a classifier to sparse rows of noisy and trusted texts."""
    return fit_sparse_classifier(vstack([noisy, trusted], format="csr"), torch.cat([posterior, verified]), constants)


def _trusted(learner: Learner, batch: Batch, generator: torch.Generator) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the view of the trusted examples and their verified labels by its name, where there are some."""
    if not len(batch.trusted_inputs):
        return {}
    verified = one_hot(batch.trusted_labels, learner.classes, like=batch.noisy_inputs)
    return {"trusted": (learner.augmentation.weak(batch.trusted_inputs, generator), verified)}


def _ramp(progress: Progress) -> float:
    """Return how much of its share a network has: none in the first third of the first phase, all after the second.

    >>> [round(_ramp(Progress(step, 30, 10)), 1) for step in (0, 10, 15, 20)], _ramp(Progress(0, 30, 10, phase=1))
    ([0.0, 0.0, 0.5, 1.0], 1.0)
    """
    return 1.0 if progress.phase else min(max(3 * progress.share - 1, 0.0), 1.0)


def _ramp_together(progress: Progress) -> float:
    """Return how much of its share the network has that goes on alone: none at first, all in the last third.

    Its rate is high at first, and for a while it knows less than before.

    >>> [round(_ramp_together(Progress(step, 30, 10)), 2) for step in (0, 10, 20, 29)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.5 * progress.share, 1.0)
