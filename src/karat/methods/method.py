"""A method in a run: its step, and what some methods need besides: memory, phases, a second network, a last touch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from karat.algorithm.network import evaluation_mode
from karat.methods.step import Batch, Learner, Progress, Step, StepResult

Tell = Callable[[str, float], None]
"""Takes the name of long work between steps and the share of it that is done."""


def ignored(work: str, share: float) -> None:
    """Tell nobody."""


@dataclass(frozen=True, eq=False)
class Task:
    """What a method may look at between its steps: the given labels, the trusted examples, every noisy input.

    `noisy_inputs` and `trusted_inputs` return the inputs at these rows, as they are, on the learner's device; labels
    are on the CPU. `modality` names what kind of thing an input is. `new_learner` makes another network with an
    optimizer of its own,
    `averaged` returns the average of the deployed model's weights. `mirrored`: a mirrored image means the same.
    `tell` shows how far work between two steps has come. `terms` are the sparse rows of noisy and of trusted texts
    where the model sees all of their terms. `units` are mean and deviation by which columns of long vectors, all of
    numbers, were standardised.
    """

    given_labels: Tensor
    noisy_inputs: Callable[[Tensor], Tensor]
    trusted_labels: Tensor
    trusted_inputs: Callable[[Tensor], Tensor]
    classes: int
    modality: str
    new_learner: Callable[[], Learner]
    averaged: Callable[[], nn.Module] | None = None
    mirrored: bool = False
    tell: Tell = ignored
    terms: tuple[Any, Any] | None = None
    units: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.given_labels)


class Phase(NamedTuple):
    """A part of a run with a learning rate schedule of its own.

    `share` is its share of the run's steps, `fresh` starts from new random weights, `rate` multiplies the learning
    rate. Beyond `most_steps`, or `most_epochs` where these are more, its steps go to the last phase.
    """

    share: float
    fresh: bool = True
    rate: float = 1.0
    most_steps: float = math.inf
    most_epochs: float = 0.0


class Judgement(NamedTuple):
    """A method's own verdict on the noisy examples, as sure as labels that were not seen allow."""

    probabilities: Tensor
    """of the classes, without the given labels"""
    posterior: Tensor
    """of the classes, with them"""
    transition: Tensor
    """[true, given]"""
    rates: Tensor | None = None
    """[hypothesis, 3]: the share of wrong labels by each hypothesis that was weighed, its standard error, its weight"""
    caution: float = 1.0
    """the power of the posterior whose claims are safe enough to change labels by"""


class Finished(NamedTuple):
    """What a trained model has become after the last step, and the verdict that it was made by; None: the audit's."""

    model: nn.Module
    judgement: Judgement | None = None


class Method(ABC):
    """What the training loop calls. A method is a step; most need nothing else, and the other calls do nothing.

    `remembers` names the attributes that a checkpoint must hold: tensors, plain numbers, learners, modules.
    """

    remembers: tuple[str, ...] = ()
    partners: tuple[Learner, ...] = ()  # further networks, which are trained and restarted with the learner's
    partners_begin_alike = False
    average_decay = 0.99  # of the weights, where nobody says which
    trusted_share = 1.0  # trusted examples in a batch, for each noisy one, where nobody says how many

    def __init__(self, task: Task, settings: Any) -> None:
        self.task = task

    def phases(self, settings: Any) -> tuple[Phase, ...]:
        """Return the parts of the run; their shares sum to 1."""
        return (Phase(1.0),)

    def begin_phase(self, number: int, learner: Learner, settings: Any, generator: torch.Generator) -> Tensor | None:
        """Prepare a phase before its network is made anew; return the rows to train on, None for all."""
        return None

    def begin_epoch(self, progress: Progress, learner: Learner, settings: Any, generator: torch.Generator) -> None:
        """Look at the whole set before a pass over the rows of the phase; most methods do not."""
        return

    @abstractmethod
    def step(self, learner: Learner, batch: Batch, settings: Any, generator: torch.Generator) -> StepResult:
        """Take one step: the same signature for every method."""

    def deployed(self, module: nn.Module) -> nn.Module:
        """Return the model that is averaged, measured and kept: the learner's, or several of them together."""
        return module

    def finish(self, model: nn.Module) -> Finished:
        """Return what a trained model becomes, and what the method says of the noisy examples by it as it was."""
        return Finished(model)

    def state_dict(self) -> dict[str, Any]:
        """Return what the method remembers."""
        return {name: _saved(getattr(self, name)) for name in self.remembers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember what `state_dict` returned."""
        for name in self.remembers:
            setattr(self, name, _restored(getattr(self, name), state[name]))


class Plain(Method):
    """A method that is nothing but its step."""

    def __init__(self, step: Step, task: Task, settings: Any) -> None:
        super().__init__(task, settings)
        self._step = step

    def step(self, learner: Learner, batch: Batch, settings: Any, generator: torch.Generator) -> StepResult:
        """Take the step."""
        return self._step(learner, batch, settings, generator)


def logits_at(learner: Learner, inputs: Callable[[Tensor], Tensor], rows: Tensor, batch_size: int = 512) -> Tensor:
    """Return the logits of the un-augmented inputs at these rows, on the CPU, in evaluation mode, without gradients."""
    with evaluation_mode(learner.network.module):
        parts = [learner.network(inputs(part)).float().cpu() for part in rows.split(batch_size)]
    return torch.cat(parts)


def _saved(value: Any) -> Any:
    if isinstance(value, Learner):
        return {"module": value.network.module.state_dict(), "optimizer": value.optimizer.state_dict()}
    if isinstance(value, nn.Module):
        return value.state_dict()
    return tuple(value) if isinstance(value, tuple) else value


def _restored(now: Any, saved: Any) -> Any:
    if isinstance(now, tuple):  # a named one comes back by its fields
        return type(now)(*saved)
    if isinstance(now, Learner):
        now.network.module.load_state_dict(saved["module"])
        now.optimizer.load_state_dict(saved["optimizer"])
        return now
    if isinstance(now, nn.Module):
        now.load_state_dict(saved)
        return now
    return saved
