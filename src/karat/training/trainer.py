"""The training loop: the method's steps, in order, with everything that a run must not lose."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from karat.audit.ledger import Ledger
from karat.data.samplers import BalancedStream, ShuffledStream
from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.inference.evaluation import evaluate, predict_probabilities
from karat.methods import make_method, settings_of
from karat.methods.method import Tell, ignored
from karat.methods.step import Batch, Progress, StepResult
from karat.models import build_model
from karat.settings.config import Config
from karat.training.average import WeightAverage
from karat.training.build import Build, make_fabric, method_task, new_learner, new_module
from karat.training.checkpoints import random_states, restore_random_states
from karat.training.figures import EpochFigures, coefficient_figures
from karat.training.optimizers import set_rate
from karat.training.phases import phase_at, phase_spans, phased_schedule, selected_in_last
from karat.training.plan import resolved


class Trainer:
    """Everything that changes during a run; `state_dict` holds all of it, so that a run can go on bit for bit."""

    def __init__(
        self,
        config: Config,
        task: NoisyTask,
        fabric: Fabric | None = None,
        folder: Path | None = None,
        build: Build = build_model,
    ) -> None:
        self.fabric = fabric or make_fabric(config.training.device)
        config, self.plan = resolved(config, task, self.fabric.device.type)
        training, optimizer = config.training, config.optimizer
        self.config, self.task, self.device = config, task, self.fabric.device
        self.classes = len(task.dataset.classes)
        self.batch_size, self.total_steps = self.plan.batch_size, self.plan.steps
        self.steps_per_epoch = math.ceil(len(task.noisy) / self.batch_size)

        torch.manual_seed(config.seed)
        self.build = build
        self.learner = new_learner(config, task, self.fabric, build)
        self.settings = settings_of(config.method, config.methods)
        self.tell: Tell = ignored  # whoever shows the progress may listen
        seen = method_task(
            config, task, self.fabric, lambda: self.average.module, lambda work, share: self.tell(work, share), build
        )
        self.method = make_method(config.method, seen, self.settings)
        self.model = self.method.deployed(self.learner.network.module)
        self.phases = self.method.phases(self.settings)
        self.spans = phase_spans(self.phases, self.total_steps)
        self.schedule = phased_schedule(
            optimizer.schedule, optimizer.rate, self.phases, self.spans, self.steps_per_epoch
        )
        self.selected_step = selected_in_last(self.schedule, self.spans)

        self.average = WeightAverage(self.model, training.average_decay)
        self.selected = WeightAverage(self.model, 0.0)
        self.validated = WeightAverage(self.model, 0.0)
        self.best_validation = -1.0
        seeds = torch.Generator().manual_seed(config.seed)
        self.generator = _generator(seeds)
        self.noisy_generator = _generator(seeds)
        self.rows = torch.arange(len(task.noisy))
        self.noisy_stream = ShuffledStream(self.rows, self.noisy_generator)
        self.trusted_batch_size = training.trusted_batch_size or self.batch_size
        self.trusted_stream: BalancedStream | ShuffledStream = (
            BalancedStream(task.trusted.labels, _generator(seeds))
            if training.trusted_balanced
            else ShuffledStream(torch.arange(len(task.trusted)), _generator(seeds))
        )
        self.ledger = Ledger(len(task.noisy), self.classes, folder)
        self.trusted_ledger = Ledger(len(task.trusted), self.classes, folder)
        self.epoch_figures = EpochFigures()
        self.steps_done = 0

    def train_step(self) -> StepResult:
        """Take the method's next step and enter in the ledger what it found."""
        progress = self._progress()
        if progress.step == 0:
            self._begin_phase(progress.phase)
            progress = self._progress()  # a phase may train on fewer rows, so that its epochs are shorter
        if progress.step % progress.steps_per_epoch == 0:
            self.method.begin_epoch(progress, self.learner, self.settings, self.generator)
        learners = (self.learner, *self.method.partners)
        for learner in learners:
            set_rate(learner.optimizer, self.schedule(self.steps_done))
            learner.network.module.train()
        batch = self._next_batch(progress)

        result = self.method.step(self.learner, batch, self.settings, self.generator)

        self.average.update(self.model)
        if self.steps_done == self.selected_step:
            self.selected.update(self.average.module)
        if result.logits is not None:
            self.ledger.record(
                batch.rows, result.logits, batch.given_labels, result.weights, result.label_trust,
                result.pseudo_labels, result.class_scores,
            )  # fmt: skip
        self.epoch_figures.add(result, batch.given_labels)
        self.steps_done += 1
        return result

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.steps_done >= self.total_steps

    @property
    def evaluation_due(self) -> bool:
        """Return whether the step just taken ended a round of epochs after which to evaluate, or the run."""
        return self.steps_done % (self.config.training.evaluate_every * self.steps_per_epoch) == 0 or self.finished

    def figures(self) -> dict[str, float]:
        """Return the figures of the epoch that ends, with the test accuracy of averaged and raw weights, if any.

        The accuracy on the trusted examples, which training sees, is that of the averaged weights. Of these, the ones
        with the best accuracy on the noisy validation examples of the last phase are kept.
        """
        test, validation = self.task.dataset.test, self.task.validation
        losses = self.epoch_figures.means()
        trusted = predict_probabilities(self.average.module, self.task.trusted.inputs)
        self.trusted_ledger.predict(trusted, self.task.trusted.labels)
        figures = {
            "step": self.steps_done,
            "epoch": self.steps_done / self.steps_per_epoch,
            "rate": self.schedule(self.steps_done - 1),
            "trusted_accuracy": (trusted.argmax(dim=1) == self.task.trusted.labels).double().mean().item(),
            **losses,
            **coefficient_figures(self.ledger, self.task.mislabelled),
        }
        if len(test):
            averaged = evaluate(self.average.module, test.inputs, test.labels)
            raw = evaluate(self.model, test.inputs, test.labels)
            figures |= {"accuracy": averaged.top1, "top5": averaged.top5}
            figures |= {"raw_accuracy": raw.top1, "raw_top5": raw.top5}
        if validation is not None:
            figures["validation_accuracy"] = evaluate(self.average.module, validation.inputs, validation.labels).top1
            in_last_phase = self.steps_done > self.spans[-1].start
            if in_last_phase and figures["validation_accuracy"] >= self.best_validation:
                self.best_validation = figures["validation_accuracy"]
                self.validated.update(self.average.module)
        self.epoch_figures = EpochFigures()
        diverged = [name for name, value in losses.items() if not math.isfinite(value)]
        if diverged:
            raise UserError(
                f"Training diverged before step {self.steps_done} ({', '.join(diverged)} not finite): "
                "lower optimizer.rate and start a new run."
            )
        return figures

    def models(self, *names: str) -> dict[str, nn.Module]:
        """Return the models of the run by name, each as the method finishes it; only those that are chosen yet.

        `names` are those wanted, all if there are none: to finish one may take as long as an epoch. Two with the same
        weights, as the selected and the averaged ones have with most schedules, are one model.
        """
        models = {"averaged": self.average.module, "raw": self.model}
        if self.steps_done > self.selected_step:
            models = {"selected": self.selected.module, **models}
        if self.best_validation >= 0:
            models["validated"] = self.validated.module
        models = {name: model for name, model in models.items() if not names or name in names}
        if not self.finished:
            return models
        finished: dict[str, nn.Module] = {}
        for name, model in models.items():
            twin = next((other for other in finished if _same_weights(models[other], model)), None)
            finished[name] = self.method.finished(model) if twin is None else finished[twin]
        return finished

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "steps_done": self.steps_done,
            "best_validation": self.best_validation,
            "rows": self.rows,
            **{name: part.state_dict() for name, part in self._parts().items()},
            "generator": self.generator.get_state(),
            "random_states": random_states(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.steps_done, self.best_validation = state["steps_done"], state["best_validation"]
        self.rows = state["rows"]
        self.noisy_stream = ShuffledStream(self.rows, self.noisy_generator)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        restore_random_states(state["random_states"])

    def _parts(self) -> dict[str, Any]:
        return {
            "model": self.learner.network.module,
            "optimizer": self.learner.optimizer,
            "method": self.method,
            "average": self.average,
            "selected": self.selected,
            "validated": self.validated,
            "noisy_stream": self.noisy_stream,
            "trusted_stream": self.trusted_stream,
            "ledger": self.ledger,
            "trusted_ledger": self.trusted_ledger,
            "epoch_figures": self.epoch_figures,
        }

    def _progress(self) -> Progress:
        number = phase_at(self.spans, self.steps_done)
        span = self.spans[number]
        return Progress(self.steps_done - span.start, len(span), math.ceil(len(self.rows) / self.batch_size), number)

    def _begin_phase(self, number: int) -> None:
        rows = self.method.begin_phase(number, self.learner, self.settings, self.generator)
        if number > 0 and self.phases[number].fresh:
            for learner in (self.learner, *self.method.partners):
                learner.network.module.load_state_dict(self._new_module().state_dict())
                learner.optimizer.state.clear()
            self.average = WeightAverage(self.model, self.config.training.average_decay)
        if number > 0 or rows is not None:
            self.rows = torch.arange(len(self.task.noisy)) if rows is None else rows
            self.noisy_stream = ShuffledStream(self.rows, self.noisy_generator)

    def _new_module(self) -> nn.Module:
        return new_module(self.config, self.task, self.fabric, self.build)

    def _next_batch(self, progress: Progress) -> Batch:
        rows = self.noisy_stream.next(self.batch_size)
        noisy = self.task.noisy.batch(rows)
        trusted = self.task.trusted.batch(self.trusted_stream.next(self.trusted_batch_size))
        return Batch(
            noisy.inputs.to(self.device),
            noisy.labels.to(self.device),
            trusted.inputs.to(self.device),
            trusted.labels.to(self.device),
            rows,
            progress,
        )


def _generator(seeds: torch.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=seeds)))


def _same_weights(one: nn.Module, other: nn.Module) -> bool:
    values = other.state_dict()
    return all(torch.equal(value, values[name]) for name, value in one.state_dict().items())
