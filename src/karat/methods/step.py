"""What every method gets and gives: one step signature, `(learner, batch, settings, generator) -> StepResult`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from karat.algorithm.network import Network
from karat.algorithm.settings import AlgorithmSettings


class Augmentation(Protocol):
    """Random views of a whole batch; all randomness comes from the generator."""

    def weak(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return the standard view."""
        ...

    def strong(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return a strongly changed view of weakly augmented inputs."""
        ...


class Batch(NamedTuple):
    """A noisy and a trusted batch; labels are class indices."""

    noisy_inputs: Tensor
    given_labels: Tensor
    trusted_inputs: Tensor
    trusted_labels: Tensor


class StepResult(NamedTuple):
    """What a step learned about its noisy examples; what a method does not compute is None."""

    losses: Mapping[str, Tensor]
    logits: Tensor
    weights: Tensor | None = None
    label_trust: Tensor | None = None
    pseudo_labels: Tensor | None = None
    class_scores: Tensor | None = None


def _backward(loss: Tensor) -> None:
    loss.backward()


@dataclass(frozen=True)
class Learner:
    """The parts that learn: network, optimizer, augmentation and how to back-propagate on this device."""

    network: Network
    optimizer: Optimizer
    augmentation: Augmentation
    classes: int
    backward: Callable[[Tensor], None] = field(default=_backward)

    def update(self, loss: Tensor) -> None:
        """Take one optimizer step down the loss: the only place that changes the model."""
        self.optimizer.zero_grad()
        self.backward(loss)
        self.optimizer.step()


Step = Callable[[Learner, Batch, AlgorithmSettings, torch.Generator], StepResult]
