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
from karat.methods.karat.contrast import contrast
from karat.methods.karat.folds import Labels, View, deal
from karat.methods.karat.heads import Judged
from karat.methods.karat.hearing import Hearing, hear, with_judge
from karat.methods.karat.hypotheses import is_even
from karat.methods.karat.learning import Believed, Learned, features_or_logits, ramp_apart, ramp_together, trusted_view
from karat.methods.karat.own_scale import OwnScale, own_scale
from karat.methods.karat.verdict import Verdict, decide
from karat.methods.karat.views import look_at
from karat.methods.method import Finished, Judgement, Method, Phase, Task, logits_at
from karat.methods.settings import KaratSettings
from karat.methods.shared.forest import Forest, WithTrees
from karat.methods.shared.mixup import Mixing, draw_mixing
from karat.methods.shared.soft_labels import sharpened
from karat.methods.step import Batch, Learner, StepResult


class Karat(Method):
    """Judge the labels, and let networks learn the verdict; those of images have a say in it."""

    remembers = ("seed", "hearing", "verdict", "forest", "halves", "is_literal", "partner", "noise_rate", "means")
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
        self.means = torch.empty(0)  # of what each of the networks predicts [network, class], in float64: they add up
        self.partner: Learner | None = None
        if task.modality == "images":  # on tables a network is no better a judge than trees and heads (DECISIONS.md)
            self.partner = task.new_learner()
            self.partners = (self.partner,)
            self.trusted_share = self.constants.network.trusted_share
            self.average_decay = self.constants.network.average_decay

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
        if self.partner is not None:
            self.means = self.verdict.shares.repeat(2, 1).double()
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
        """Take the step of one of two networks, to which the given labels of its `own` rows are known."""
        network = self.constants.network
        believed = Believed(network.own_share * ramp_apart(batch.progress), network.temperature)
        often = len(batch.trusted_labels) / len(batch.rows)
        return self._learn_views(learner, batch, own[:, None], believed, often, 0.0, generator)

    def _learn_given(self, learner: Learner, batch: Batch, own: Tensor, generator: torch.Generator) -> StepResult:
        """Take the step of one of two networks that learns to predict the given labels, by its `own` rows.

        Such a network knows nothing of T, so that it can tell what T is.
        """
        rows = own.nonzero().flatten().to(batch.noisy_inputs.device)
        if not len(rows):
            return self._found(batch, {})
        weak, close = self._views(learner, batch, generator)
        features, logits = features_or_logits(learner, torch.cat([weak, close]))
        given = one_hot(batch.given_labels[rows], learner.classes, like=batch.noisy_inputs)
        learned = {
            "weak": Learned(logits[rows], given, 1.0),
            "close": Learned(logits[rows + len(weak)], given, self.constants.network.close_up),
        }
        nothing = torch.ones(len(weak), 1)  # is known of the classes of the others
        return self._descend(learner, batch, learned, self._unlike(features, nothing, by_class=0.0))

    def _learn_together(
        self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator
    ) -> StepResult:
        """Take the step of the network that goes on alone, to which all labels are known."""
        network = self.constants.network
        believed = Believed(network.own_share_together * ramp_together(batch.progress), network.temperature_together)
        often = min(network.trusted_repeated * len(self.task.trusted_labels) / len(self.task), 1.0)
        concentration = settings.mixup * self.noise_rate
        return self._learn_views(learner, batch, torch.ones(()).bool(), believed, often, concentration, generator)

    def _learn_views(
        self,
        learner: Learner,
        batch: Batch,
        own: Tensor,
        believed: Believed,
        often: float,
        concentration: float,
        generator: torch.Generator,
    ) -> StepResult:
        """Take a step on a weak view and a close-up, mirrored either way, and on the trusted images.

        What the network learns is what it predicts itself on the weak view, as much as it is believed, and what the
        label says of that: so the label is not held up by what weaker judges say. `often` is what all trusted images of
        the batch count, against the weak views. With a concentration of the factors, both are mixed with each other to
        be learned.
        """
        network, trusted = self.constants.network, trusted_view(learner, batch, generator)
        (weak, close), count = self._views(learner, batch, generator), len(batch.rows)
        verified = [target for _, target in trusted.values()]
        views = torch.cat([weak, *(view for view, _ in trusted.values())])
        mixing = self._mixing(len(views), concentration, generator)
        views = views[count:] if mixing is None else mixing(views)
        features, logits = features_or_logits(learner, torch.cat([weak, close, views]))
        said = self._aligned(learner, logits[:count].detach().softmax(dim=1))
        wanted = sharpened(self._wanted(batch, own, said, believed.share), believed.temperature)
        targets, of_views = torch.cat([wanted, *verified]), torch.cat([logits[:count], logits[2 * count :]])
        if mixing is not None:
            targets, of_views = mixing(targets), logits[2 * count :]
        learned = {
            "weak": Learned(of_views[:count], targets[:count], 1.0),
            "close": Learned(logits[count : 2 * count], wanted, network.close_up),
        }
        learned |= {name: Learned(of_views[count:], targets[count:], often) for name in trusted}
        unlike = self._unlike(features[: 2 * count], wanted, network.contrast_by_class)
        return self._descend(learner, batch, learned, unlike)

    def _views(self, learner: Learner, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return a weak view and a close-up of the noisy images, mirrored either way."""
        other = None if batch.mirrored is None else ~batch.mirrored
        weak = learner.noisy_view(batch, generator)
        return weak, learner.augmentation.close_up(batch.noisy_inputs, generator, other)

    def _unlike(self, features: Tensor, known: Tensor, by_class: float) -> Tensor:
        """Return how unlike the features of two views of each image are, by its weight in the loss."""
        network = self.constants.network
        return network.contrast * contrast(features, known, network.contrast_temperature, by_class)

    def _aligned(self, learner: Learner, said: Tensor) -> Tensor:
        """Return a network's predictions moved towards the shares of the classes, by their mean over past batches."""
        network, number = self.constants.network, int(learner is self.partner)
        self.means[number] = self.means[number].lerp(said.mean(dim=0).to(self.means), network.aligned_over)
        aligned = said * (self.verdict.shares / self.means[number]).to(said) ** network.aligned
        return aligned / aligned.sum(dim=1, keepdim=True)

    def _descend(
        self, learner: Learner, batch: Batch, learned: Mapping[str, Learned], unlike: Tensor | float = 0.0
    ) -> StepResult:
        """Take a step down the mean cross-entropy to the targets of the views, by their weights, and `unlike`."""
        terms = {
            name: cross_entropy(view.targets, log_probability(view.logits)).mean() for name, view in learned.items()
        }
        weights = {name: view.weight for name, view in learned.items()}
        loss = (
            torch.stack([weights[name] * term for name, term in terms.items()]).sum() / sum(weights.values()) + unlike
        )
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

    def _mixing(self, count: int, concentration: float, generator: torch.Generator) -> Mixing | None:
        """Draw how examples are mixed; the more labels are wrong the more, right labels need no mixing."""
        if concentration <= self.constants.least_mixup:
            return None
        return draw_mixing(count, concentration, generator, keep_first=True)

    def _learn(self, learner: Learner, batch: Batch, settings: KaratSettings, generator: torch.Generator) -> StepResult:
        """Take the step of a network of vectors, which learns the posteriors, on mixed views."""
        targets = self.verdict.posterior[batch.rows].to(batch.noisy_inputs)
        weak = learner.augmentation.weak(batch.noisy_inputs, generator)
        strong = learner.augmentation.strong(weak, generator)
        views = {"weak": (weak, targets), "strong": (strong, sharpened(targets, settings.temperature))}
        views |= trusted_view(learner, batch, generator)
        inputs, wanted = (torch.cat(part) for part in zip(*views.values(), strict=True))
        mixing = self._mixing(len(inputs), settings.mixup * self.noise_rate, generator)
        if mixing is not None:
            inputs, wanted = mixing(inputs), mixing(wanted)
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
