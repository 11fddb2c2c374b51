"""The training loop: the method's steps, in order, with everything that a run must not lose."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from karat.algorithm.network import Network
from karat.audit.ledger import Ledger
from karat.config import Config
from karat.data.augmentation import make_augmentation
from karat.data.prepare import NoisyTask
from karat.data.samplers import BalancedStream, ShuffledStream
from karat.errors import UserError
from karat.methods import method_named
from karat.methods.step import Batch, Learner, StepResult
from karat.models import build_model
from karat.training.average import WeightAverage
from karat.training.checkpoints import random_states, restore_random_states
from karat.training.evaluation import evaluate
from karat.training.optimizers import make_optimizer, set_rate
from karat.training.schedules import make_schedule, selected_step


class Trainer:
    """Everything that changes during a run; `state_dict` holds all of it, so that a run can go on bit for bit."""

    def __init__(self, config: Config, task: NoisyTask, fabric: Fabric | None = None) -> None:
        fabric = fabric or make_fabric(config.training.device)
        training, optimizer = config.training, config.optimizer
        classes = len(task.dataset.classes)
        shape = tuple(task.noisy.inputs.shape[1:])
        self.config, self.task, self.device = config, task, fabric.device
        self.step = method_named(config.method)
        self.batch_size = min(training.batch_size or default_batch_size(len(task.noisy)), len(task.noisy))
        self.steps_per_epoch = math.ceil(len(task.noisy) / self.batch_size)
        self.total_steps = training.steps or training.epochs * self.steps_per_epoch
        self.schedule = make_schedule(optimizer.schedule, optimizer.rate, self.total_steps, self.steps_per_epoch)
        self.selected_step = selected_step(self.schedule, self.total_steps)

        torch.manual_seed(config.seed)
        self.model = build_model(config.model, shape, classes)
        if len(shape) == 3:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.model = fabric.to_device(self.model)
        self.learner = Learner(
            Network(self.model),
            make_optimizer(
                optimizer.name, self.model.parameters(), optimizer.rate, optimizer.momentum, optimizer.nesterov,
                optimizer.weight_decay,
            ),
            make_augmentation(shape, task.dataset.flip, config.augmentation),
            classes,
            fabric.backward,
        )  # fmt: skip
        self.average = WeightAverage(self.model, training.average_decay)
        self.selected = WeightAverage(self.model, 0.0)
        seeds = torch.Generator().manual_seed(config.seed)
        self.generator = _generator(seeds)
        self.noisy_stream = ShuffledStream(torch.arange(len(task.noisy)), _generator(seeds))
        self.trusted_batch_size = training.trusted_batch_size or self.batch_size
        self.trusted_stream: BalancedStream | ShuffledStream = (
            BalancedStream(task.trusted.labels, _generator(seeds))
            if training.trusted_balanced
            else ShuffledStream(torch.arange(len(task.trusted)), _generator(seeds))
        )
        self.ledger = Ledger(len(task.noisy), classes)
        self.epoch_figures = EpochFigures()
        self.steps_done = 0

    def train_step(self) -> StepResult:
        """Take the method's next step and enter in the ledger what it found."""
        rate = self.schedule(self.steps_done)
        set_rate(self.learner.optimizer, rate)
        noisy_rows = self.noisy_stream.next(self.batch_size)
        noisy = self.task.noisy.subset(noisy_rows)
        trusted = self.task.trusted.subset(self.trusted_stream.next(self.trusted_batch_size))
        batch = Batch(*(part.to(self.device) for part in (noisy.inputs, noisy.labels, trusted.inputs, trusted.labels)))

        self.model.train()
        result = self.step(self.learner, batch, self.config.algorithm, self.generator)

        self.average.update(self.model)
        if self.steps_done == self.selected_step:
            self.selected.update(self.average.module)
        self.ledger.record(noisy_rows, result.logits.softmax(dim=1), result.weights, result.label_trust)
        self.epoch_figures.add(result)
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
        """Return the figures of the epoch that ends, with the test accuracy of averaged and raw weights."""
        test = self.task.dataset.test
        averaged = evaluate(self.average.module, test.inputs, test.labels)
        raw = evaluate(self.model, test.inputs, test.labels)
        losses = self.epoch_figures.means()
        figures = {
            "step": self.steps_done,
            "epoch": self.steps_done / self.steps_per_epoch,
            "rate": self.schedule(self.steps_done - 1),
            "accuracy": averaged.top1,
            "top5": averaged.top5,
            "raw_accuracy": raw.top1,
            "raw_top5": raw.top5,
            **losses,
            **coefficient_figures(self.ledger, self.task.mislabelled),
        }
        self.epoch_figures = EpochFigures()
        diverged = [name for name, value in losses.items() if not math.isfinite(value)]
        if diverged:
            raise UserError(
                f"Training diverged before step {self.steps_done} ({', '.join(diverged)} not finite): "
                "lower optimizer.rate and start a new run."
            )
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next steps depend on."""
        return {
            "steps_done": self.steps_done,
            **{name: part.state_dict() for name, part in self._parts().items()},
            "generator": self.generator.get_state(),
            "random_states": random_states(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.steps_done = state["steps_done"]
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        restore_random_states(state["random_states"])

    def _parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.learner.optimizer,
            "average": self.average,
            "selected": self.selected,
            "noisy_stream": self.noisy_stream,
            "trusted_stream": self.trusted_stream,
            "ledger": self.ledger,
            "epoch_figures": self.epoch_figures,
        }


class EpochFigures:
    """Sums over the steps of an epoch: the terms of the loss, and how often no example got any weight."""

    def __init__(self) -> None:
        self.steps = 0
        self.sums: dict[str, Tensor] = {}

    def add(self, result: StepResult) -> None:
        """Add a step."""
        self.steps += 1
        found = dict(result.losses)
        if result.weights is not None:
            found["collapsed_share"] = (result.weights.sum() == 0).float()
        for name, value in found.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value.clone()

    def means(self) -> dict[str, float]:
        """Return the mean over the steps."""
        return {name: value.item() / self.steps for name, value in self.sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        return {"steps": self.steps, "sums": dict(self.sums)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with these sums."""
        self.steps, self.sums = state["steps"], dict(state["sums"])


def default_batch_size(examples: int) -> int:
    """Return 100, or fewer for a small set, so that an epoch has about 24 batches, but 20 at least.

    >>> default_batch_size(50_000), default_batch_size(1_200), default_batch_size(100)
    (100, 50, 20)
    """
    return min(100, max(20, examples // 24))


def make_fabric(device: str) -> Fabric:
    """Return Lightning Fabric on one device of this kind; "auto" is a GPU if torch sees one, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return Fabric(accelerator=device, devices=1)
    except RuntimeError as error:
        raise UserError(f"This machine has no device '{device}': write training.device: auto.") from error


def coefficient_figures(ledger: Ledger, mislabelled: Tensor | None) -> dict[str, float]:
    """Return the mean label trust, and both coefficients split by whether the label is right, where known."""
    known = ~ledger.weight.isnan()
    if not known.any():
        return {}
    figures = {"zero_weight_share": (ledger.weight[known] == 0).float().mean().item()}
    if mislabelled is not None:
        total = ledger.weight[known].sum().item()
        clean = ledger.weight[known & ~mislabelled].sum().item()
        figures["clean_weight_share"] = clean / total if total else math.nan
    if not ledger.label_trust[known].isnan().any():
        figures["label_trust"] = ledger.label_trust[known].mean().item()
        if mislabelled is not None:
            figures["clean_label_trust"] = ledger.label_trust[known & ~mislabelled].mean().item()
            figures["mislabelled_label_trust"] = ledger.label_trust[known & mislabelled].mean().item()
    return figures


def _generator(seeds: torch.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=seeds)))
