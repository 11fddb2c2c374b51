"""A run in memory: the method's steps, in order, with everything that it must not lose. Nothing here writes a file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from karat.algorithm.ranks import Ranks, SharedModel
from karat.audit.ledger import Ledger
from karat.data.examples import Examples
from karat.data.images import ImageFiles, row_blocks
from karat.data.modality import IMAGES
from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.inference.device import compute_device
from karat.inference.evaluation import evaluate, predict_probabilities
from karat.methods import make_method, settings_of
from karat.methods.method import Finished, Tell, ignored
from karat.methods.step import Batch, Progress, StepResult
from karat.models import build_model
from karat.settings.config import Config
from karat.training.build import Build, method_task, new_learner, new_module
from karat.training.kept_models import KeptModels
from karat.training.metrics import EpochSums, coefficient_metrics
from karat.training.optimizers import set_rate
from karat.training.phases import make_course
from karat.training.plan import resolved
from karat.training.random_states import random_states, restore_random_states
from karat.training.streams import Streams, new_generator

FEWEST_TRUSTED = 10  # in a batch, unless it is smaller
# Test examples on which an epoch is measured, but the last: 12 passes over 10,000 images of CIFAR-10 spent a third of
# their passes on its 10,000 test images (a backward pass counts as two).
MEASURED_BETWEEN = 2_000
STEPS_BETWEEN_CHECKPOINTS = 50  # at least: writing one takes as long as several steps of a small network


RECOVERIES = 3  # how often a run whose loss was not finite goes back and on with a lower rate
RATE_AFTER_RECOVERY = 0.3


class Diverged(UserError):
    """The loss is not finite any more."""


class Trainer:
    """Everything that changes during a run; `state_dict` holds all of it, so that a run can go on bit for bit.

    `scratch` is a folder for what is too large for memory; it is empty again when the process ends. `ranks` are the
    processes that take the steps together: all of them do the same, but for the passes of networks, which they share,
    and for work between two phases, which the first one does for all. The first alone has ledgers.
    """

    def __init__(
        self,
        config: Config,
        task: NoisyTask,
        scratch: Path | None = None,
        build: Build = build_model,
        ranks: Ranks | None = None,
    ) -> None:
        self.device = compute_device(config.training.device)
        self.task, self.build, self.ranks = task, build, ranks
        if ranks is None:
            self.config, self.plan = resolved(config, task, self.device.type)
        else:  # a measured speed is another one in every process
            self.config, self.plan = ranks.from_first(lambda: resolved(config, task, self.device.type, ranks.count))
        self.classes = len(task.dataset.classes)
        self.batch_size, self.total_steps = self.plan.batch_size, self.plan.steps
        self.steps_per_epoch = math.ceil(len(task.noisy) / self.batch_size)
        self._make_method()
        self._make_streams()
        self.writes = ranks is None or ranks.is_first
        self.ledger = Ledger(len(task.noisy) if self.writes else 0, self.classes, scratch)
        self.trusted_ledger = Ledger(len(task.trusted) if self.writes else 0, self.classes, scratch)
        self.epoch_sums = EpochSums()
        self.steps_done = 0
        self.recoveries = 0  # how often the run went back to a good state: each lowers the rate

    def _make_method(self) -> None:
        """Make network, optimizer and method from the global random state, and lay out the run."""
        config, optimizer = self.config, self.config.optimizer
        torch.manual_seed(config.seed)
        self.learner = new_learner(config, self.task, self.device, self.build, self.ranks)
        self.settings = settings_of(config.method, config.methods)
        self.tell: Tell = ignored  # whoever shows the progress may listen
        seen = method_task(
            config,
            self.task,
            self.device,
            lambda: self.kept.averaged.module,
            lambda work, share: self.tell(work, share),
            self.build,
            self.ranks,
        )
        self.method = make_method(config.method, seen, self.settings)
        assert optimizer.rate is not None  # settled by the plan
        self.model = self.method.deployed(self.learner.network.module)
        decay = config.training.average_decay
        self.kept = KeptModels(self.model, self.method.average_decay if decay is None else decay)
        self.course = make_course(
            self.method.phases(self.settings),
            optimizer.schedule,
            optimizer.rate,
            self.total_steps,
            self.steps_per_epoch,
        )

    def _make_streams(self) -> None:
        training = self.config.training
        seeds = torch.Generator().manual_seed(self.config.seed)
        self.generator = new_generator(seeds)
        noisy, trusted = self.task.noisy, self.task.trusted
        self.streams = Streams(len(noisy), trusted.labels, training.trusted_balanced, seeds, row_blocks(noisy.inputs))
        self._first_mirrored = torch.rand(len(self.task.noisy), generator=new_generator(seeds)) < 0.5
        usual = min(self.batch_size, max(FEWEST_TRUSTED, round(self.method.trusted_share * self.batch_size)))
        self.trusted_batch_size = (training.trusted_batch_size or usual) if len(self.task.trusted) else 0

    def train_step(self) -> StepResult:
        """Take the method's next step and enter in the ledger what it found."""
        progress = self._progress()
        if progress.step == 0:
            self._begin_phase(progress.phase)
            progress = self._progress()  # a phase may train on fewer rows, so that its epochs are shorter
        if progress.step % progress.steps_per_epoch == 0:
            self.method.begin_epoch(progress, self.learner, self.settings, self.generator)
        for learner in (self.learner, *self.method.partners):
            set_rate(learner.optimizer, self.rate)
            learner.network.module.train()
        batch = self._next_batch(progress)

        result = self.method.step(self.learner, batch, self.settings, self.generator)
        self._check_finite({name: value.item() for name, value in result.losses.items()})

        self.kept.averaged.update(self.model)
        if self.steps_done == self.course.selected_step:
            self.kept.select()
        if result.logits is not None and self.writes:
            self.ledger.record(
                batch.rows, result.logits, batch.given_labels, result.weights, result.label_trust,
                result.pseudo_labels, result.class_scores,
            )  # fmt: skip
        self.epoch_sums.add(result, batch.given_labels)
        self.steps_done += 1
        return result

    @property
    def rate(self) -> float:
        """Return the learning rate of the next step."""
        return self.course.rate(self.steps_done) * RATE_AFTER_RECOVERY**self.recoveries

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.steps_done >= self.total_steps

    @property
    def evaluation_due(self) -> bool:
        """Return whether the step just taken ended a round of epochs after which to evaluate, or the run."""
        return self.steps_done % (self.config.training.evaluate_every * self.steps_per_epoch) == 0 or self.finished

    @property
    def checkpoint_due(self) -> bool:
        """Return whether the state after the step just taken is to be kept."""
        every = self.config.training.checkpoint_every or max(self.steps_per_epoch, STEPS_BETWEEN_CHECKPOINTS)
        return self.steps_done % every == 0 or self.finished

    def end_epoch(self) -> dict[str, float]:
        """Return the metrics of the epoch that ends; keep the best model of it and begin new sums."""
        means = self.epoch_sums.means()
        metrics = {
            "step": self.steps_done,
            "epoch": self.steps_done / self.steps_per_epoch,
            "rate": self.course.rate(self.steps_done - 1) * RATE_AFTER_RECOVERY**self.recoveries,
            **means,
            **coefficient_metrics(self.ledger, self.task.mislabelled),
            **self._measured(),
        }
        if "validation_accuracy" in metrics and self.steps_done > self.course.spans[-1].start:
            self.kept.validate(metrics["validation_accuracy"])
        self.epoch_sums = EpochSums()
        return metrics

    def _check_finite(self, losses: Mapping[str, float]) -> None:
        """Stop before a step that diverged enters the ledger and the averages."""
        diverged = [name for name, value in losses.items() if not math.isfinite(value)]
        if diverged:
            raise Diverged(
                f"Training diverged at step {self.steps_done + 1} ({', '.join(diverged)} not finite): "
                "lower optimizer.rate and start a new run."
            )

    def _measured(self) -> dict[str, float]:
        """Measure averaged and raw weights on test examples, averaged ones on trusted and held-out ones.

        Before the run is over the test examples are a sample, always the same.
        """
        test, validation = self.task.dataset.test, self.task.validation
        found = self._on_trusted()
        if len(test):
            if len(test) > MEASURED_BETWEEN and not self.finished:
                test = test.subset(sampled(len(test), MEASURED_BETWEEN))
            found["test_examples"] = len(test)
            averaged = evaluate(self._shared(self.kept.averaged.module), test.inputs, test.labels)
            raw = evaluate(self._shared(self.model), test.inputs, test.labels)
            found |= {"accuracy": averaged.top1, "top5": averaged.top5}
            found |= {"raw_accuracy": raw.top1, "raw_top5": raw.top5}
        if validation is not None:
            accuracy = evaluate(self._shared(self.kept.averaged.module), validation.inputs, validation.labels)
            found["validation_accuracy"] = accuracy.top1
        return found

    def _on_trusted(self) -> dict[str, float]:
        """Measure averaged weights on the trusted examples, where there are some, and enter what they predict."""
        inputs, labels = self.task.trusted.inputs, self.task.trusted.labels
        if not len(labels):
            return {}
        predicted = predict_probabilities(self._shared(self.kept.averaged.module), inputs)
        if self.writes:
            self.trusted_ledger.predict(predicted, labels)
        return {"trusted_accuracy": (predicted.argmax(dim=1) == labels).double().mean().item()}

    def _shared(self, model: nn.Module) -> nn.Module:
        """Return a model whose passes the processes share."""
        return model if self.ranks is None else SharedModel(model, self.ranks)

    def models(self) -> dict[str, nn.Module]:
        """Return the models of the run by name, as they are now; only those that are chosen yet."""
        return self.kept.by_name(self.model)

    def finished_models(self, *names: str) -> dict[str, Finished]:
        """Return the models of a run whose steps are done, each as the method finishes it.

        `names` are those wanted, all if there are none: to finish one may take as long as an epoch. Two with the same
        weights, as the selected and the averaged ones have with most schedules, are finished once.
        """
        models = {name: model for name, model in self.models().items() if not names or name in names}
        finished: dict[str, Finished] = {}
        for name, model in models.items():
            twin = next((other for other in finished if _same_weights(models[other], model)), None)
            finished[name] = self.method.finish(model) if twin is None else finished[twin]
        return finished

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "steps_done": self.steps_done,
            "recoveries": self.recoveries,
            **{name: part.state_dict() for name, part in self._parts().items()},
            "generator": self.generator.get_state(),
            "random_states": random_states(),
        }

    def shared_state(self) -> dict[str, Any]:
        """Return what the other processes need to go on with this one: everything but the ledgers."""
        return {name: part for name, part in self.state_dict().items() if not name.endswith("ledger")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.steps_done, self.recoveries = state["steps_done"], state["recoveries"]
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        restore_random_states(state["random_states"])

    def _parts(self) -> dict[str, Any]:
        ledgers = {"ledger": self.ledger, "trusted_ledger": self.trusted_ledger} if self.writes else {}
        return {
            "model": self.learner.network.module,
            "optimizer": self.learner.optimizer,
            "method": self.method,
            "kept": self.kept,
            "streams": self.streams,
            **ledgers,
            "epoch_sums": self.epoch_sums,
        }

    def _progress(self) -> Progress:
        number = self.course.phase_at(self.steps_done)
        span, rows = self.course.spans[number], self.streams.rows
        return Progress(self.steps_done - span.start, len(span), math.ceil(len(rows) / self.batch_size), number)

    def _begin_phase(self, number: int) -> None:
        rows = self._prepared_phase(number)
        if number > 0 and self.course.phases[number].fresh:
            for learner in (self.learner, *self.method.partners):
                fresh = new_module(self.config, self.task, self.device, self.build)
                learner.network.module.load_state_dict(fresh.state_dict())
                learner.optimizer.state.clear()
            self.kept.restart(self.model)
        self.streams.restrict(rows)

    def _prepared_phase(self, number: int) -> Tensor | None:
        """Let the method prepare a phase: the first process does it, and the others learn what it found."""

        def prepare() -> tuple[Tensor | None, dict[str, Any]]:
            rows = self.method.begin_phase(number, self.learner, self.settings, self.generator)
            if self.ranks is None:
                return rows, {}
            state = {name: part.state_dict() for name, part in self._parts().items() if name in ("model", "method")}
            return rows, {**state, "generator": self.generator.get_state(), "random_states": random_states()}

        if self.ranks is None:
            return prepare()[0]
        rows, state = self.ranks.from_first(prepare)
        if not self.ranks.is_first:
            self.learner.network.module.load_state_dict(state["model"])
            self.method.load_state_dict(state["method"])
            self.generator.set_state(state["generator"])
            restore_random_states(state["random_states"])
        return rows

    def _next_batch(self, progress: Progress) -> Batch:
        rows = self.streams.noisy.next(self.batch_size)
        noisy = self._read(self.task.noisy, rows)
        trusted = self._read(self.task.trusted, self.streams.trusted.next(self.trusted_batch_size))
        return Batch(
            noisy.inputs.to(self.device),
            noisy.labels.to(self.device),
            trusted.inputs.to(self.device),
            trusted.labels.to(self.device),
            rows,
            progress,
            self._mirrored(rows, progress.epoch),
        )

    def _read(self, examples: Examples, rows: Tensor) -> "Examples[Tensor]":
        """Return the examples at these rows; of image files each process decodes its part and hands it on."""
        if self.ranks is None or not isinstance(examples.inputs, ImageFiles) or len(rows) < self.ranks.count:
            return examples.batch(rows)
        own = examples.batch(rows[self.ranks.part(len(rows))])
        return Examples(self.ranks.whole(own.inputs, len(rows)), examples.labels[rows])

    def _mirrored(self, rows: Tensor, epoch: int) -> Tensor | None:
        """Return which of these noisy examples are mirrored in this pass: half of them, and the others in the next."""
        dataset = self.task.dataset
        if dataset.modality is not IMAGES or not self.config.augmentation.mirrors(dataset.flip):
            return None
        return self._first_mirrored[rows] ^ bool(epoch % 2)


def sampled(count: int, most: int) -> Tensor:
    """Return that many rows drawn from all, in their order: a set may have its classes in turn.

    >>> sampled(10, most=3)
    tensor([1, 4, 7])
    """
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:most].sort().values


def _same_weights(one: nn.Module, other: nn.Module) -> bool:
    values = other.state_dict()
    return all(torch.equal(value, values[name]) for name, value in one.state_dict().items())
