"""The exponential moving average of a model's weights, which is the model that is evaluated and kept."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from karat.errors import UserError


class WeightAverage:
    """Follow a model with an exponential moving average of its parameters and floating-point buffers.

    Update t, counted from 0, sets average ← d·average + (1−d)·model with d = min(decay, (1+t)/(10+t)), so
    that the random initial weights are soon forgotten. Integer buffers are copied. A decay of 0 copies
    everything. `module` is the average as a model of its own, in evaluation mode and without gradients.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 0.0)
    >>> average = WeightAverage(model, decay=0.99)
    >>> _ = nn.init.constant_(model.weight, 1.0)
    >>> average.update(model)  # t = 0: 0.1·0 + 0.9·1
    >>> round(average.module.weight.item(), 6)
    0.9
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise UserError(f"The decay of the weight average is {decay}; it must be in [0, 1).")
        self.decay = decay
        self.updates = 0
        self.module = deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average towards the model, in place; tied weights are moved once."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        averages: list[Tensor] = []
        targets: list[Tensor] = []
        for (_, average), (_, target) in zip(_named_tensors(self.module), _named_tensors(model), strict=True):
            if decay == 0 or not (average.is_floating_point() or average.is_complex()):
                average.copy_(target)
            else:
                averages.append(average)
                targets.append(target)
        if averages:
            torch._foreach_lerp_(averages, targets, 1 - decay)
        self.updates += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the number of updates and the averaged tensors, non-persistent buffers included.

        As in torch, the tensors are the average itself, not copies of it.
        """
        return {"updates": self.updates, "tensors": dict(_named_tensors(self.module))}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the average that `state_dict` returned, in place."""
        tensors, own = state["tensors"], dict(_named_tensors(self.module))
        if {name: tensor.shape for name, tensor in tensors.items()} != {
            name: tensor.shape for name, tensor in own.items()
        }:
            raise UserError("The saved weight average belongs to another model; build the model it was saved from.")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
        self.updates = state["updates"]


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every parameter and buffer once, under the first of its names."""
    named = chain(module.named_parameters(), module.named_buffers())
    return ((name, tensor.detach()) for name, tensor in named)
