"""What the networks of images learn in a step: from which views, how far they are believed, and when."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from karat.algorithm.targets import one_hot
from karat.methods.shared import last_layer
from karat.methods.step import Batch, Learner, Progress


class Believed(NamedTuple):
    """How far a network is believed: the share of its own prediction in what it learns, and how sharp that is made."""

    share: float
    temperature: float


class Learned(NamedTuple):
    """What a network says of some views, what it should say, and what that counts."""

    logits: Tensor
    targets: Tensor
    weight: float


def features_or_logits(learner: Learner, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return features and logits; of a network without a linear layer the logits are its features."""
    if any(isinstance(layer, nn.Linear) for layer in learner.network.module.modules()):
        return last_layer.features_and_logits(learner, inputs)
    logits = learner.network(inputs)
    return logits, logits


def trusted_view(learner: Learner, batch: Batch, generator: torch.Generator) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the view of the trusted examples and their verified labels by its name, where there are some."""
    if not len(batch.trusted_inputs):
        return {}
    verified = one_hot(batch.trusted_labels, learner.classes, like=batch.noisy_inputs)
    return {"trusted": (learner.augmentation.weak(batch.trusted_inputs, generator), verified)}


def ramp_apart(progress: Progress) -> float:
    """Return how much of its share a network has: none in the first third of the first phase, all after the second.

    >>> [round(ramp_apart(Progress(step, 30, 10)), 1) for step in (0, 10, 15, 20)]
    [0.0, 0.0, 0.5, 1.0]
    >>> ramp_apart(Progress(0, 30, 10, phase=1))
    1.0
    """
    return 1.0 if progress.phase else min(max(3 * progress.share - 1, 0.0), 1.0)


def ramp_together(progress: Progress) -> float:
    """Return how much of its share the network has that goes on alone: none at first, all in the last third.

    Its rate is high at first, and for a while it knows less than before.

    >>> [round(ramp_together(Progress(step, 30, 10)), 2) for step in (0, 10, 20, 29)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return min(1.5 * progress.share, 1.0)
