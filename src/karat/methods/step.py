"""What every method gets and gives: one step signature, `(learner, batch, settings, generator) -> StepResult`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from karat.algorithm.network import Network


class Augmentation(Protocol):
    """Random views of a whole batch; all randomness comes from the generator."""

    def weak(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Return the standard view; `mirrored` says which inputs are mirrored, None draws it."""
        ...

    def strong(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return a strongly changed view of weakly augmented inputs."""
        ...

    def close_up(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Return a view of a part of each input, to be compared with another view of it."""
        ...


class Progress(NamedTuple):
    """How far a run, or the phase of a run, has come: `step` of `total_steps`, counted from 0.

    >>> Progress(step=30, total_steps=120, steps_per_epoch=12).epoch
    2
    """

    step: int
    total_steps: int
    steps_per_epoch: int
    phase: int = 0

    @property
    def epoch(self) -> int:
        """Return the number of whole passes over the noisy examples before this step."""
        return self.step // self.steps_per_epoch

    @property
    def share(self) -> float:
        """Return the share of the steps that are done."""
        return self.step / self.total_steps


class Batch(NamedTuple):
    """A noisy and a trusted batch; labels are class indices, `rows` the places of the noisy examples (on the CPU).

    `mirrored` says which noisy examples are mirrored in this pass: each in every other one. None leaves it to chance.
    """

    noisy_inputs: Tensor
    given_labels: Tensor
    trusted_inputs: Tensor
    trusted_labels: Tensor
    rows: Tensor = torch.empty(0, dtype=torch.long)
    progress: Progress = Progress(0, 1, 1)
    mirrored: Tensor | None = None


class StepResult(NamedTuple):
    """What a step learned about its noisy examples; what a method does not compute is None."""

    losses: Mapping[str, Tensor]
    logits: Tensor | None
    weights: Tensor | None = None
    label_trust: Tensor | None = None
    pseudo_labels: Tensor | None = None
    class_scores: Tensor | None = None


@dataclass(frozen=True)
class Learner:
    """The parts that learn: network, optimizer and augmentation.

    `label_smoothing` is the share of a hard label that goes to all classes, in methods that believe hard labels.
    """

    network: Network
    optimizer: Optimizer
    augmentation: Augmentation
    classes: int
    label_smoothing: float = 0.0

    def noisy_view(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the standard view of the noisy inputs, for methods that look at one; each is mirrored in its turn."""
        return self.augmentation.weak(batch.noisy_inputs, generator, batch.mirrored)

    def update(self, loss: Tensor) -> None:
        """Take one optimizer step down the loss."""
        with self.one_step() as go_back:
            go_back(loss)

    @contextmanager
    def one_step(self) -> Iterator[Callable[[Tensor], None]]:
        """Take one optimizer step down the sum of the losses that are handed over.

        This is the only place that changes the model. The graph of a loss is gone once it is handed over, so that the
        next one has its memory.
        """
        self.optimizer.zero_grad()
        yield lambda loss: loss.backward()
        self.network.add_up_gradients()
        self.optimizer.step()


# The third argument is the method's settings; None where it has none.
Step = Callable[[Learner, Batch, Any, torch.Generator], StepResult]
