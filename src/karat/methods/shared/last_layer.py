"""Hidden features of any network: what goes into its last linear layer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from karat.algorithm.network import Network, evaluation_mode
from karat.errors import UserError
from karat.methods.step import Learner


class Hidden(NamedTuple):
    """The last linear layer, in the order of `module.modules()`, that a forward pass called, with input and output.

    Where it was called several times, on views of the same inputs, these are the means over the calls: the layer makes
    the mean output of the mean input.
    """

    head: nn.Linear
    features: Tensor
    logits: Tensor
    """What the network returned: what the head gave, unless the network goes on after it."""
    head_output: Tensor


def hidden(network: Learner | Network | nn.Module, inputs: Tensor) -> Hidden:
    """Run a forward pass in the network's present mode and read its last linear layer; no hook is left behind."""
    call = network.network if isinstance(network, Learner) else network
    # A layer is called once then, and its hook is called.
    call = replace(call, pieces=None, compiled=None) if isinstance(call, Network) else call
    module = call.module if isinstance(call, Network) else call
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    seen: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def remember(layer: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        seen.setdefault(layer, []).append((arguments[0], output))

    hooks = [layer.register_forward_hook(remember) for layer in linear]
    try:
        logits = call(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    for head in reversed(linear):
        if head in seen:
            features, output = seen[head][0] if len(seen[head]) == 1 else _means(seen[head])
            if isinstance(call, Network):
                features, output = (call.whole(part, len(inputs)).to(logits.dtype) for part in (features, output))
            if output.shape == logits.shape and torch.equal(output, logits):
                output = logits
            return Hidden(head, features.flatten(1), logits, output)
    raise UserError(
        "This method reads the hidden features before the last nn.Linear, and this network has none: "
        "choose another model or method."
    )


def _means(calls: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    inputs, outputs = zip(*calls, strict=True)
    return torch.stack(inputs).mean(dim=0), torch.stack(outputs).mean(dim=0)


def features_and_logits(network: Learner | Network | nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the input of the last linear layer, one row for each example, and the logits.

    >>> model = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> features, logits = features_and_logits(model, torch.ones(4, 5))
    >>> features.shape, torch.equal(model[2](features), logits)
    (torch.Size([4, 3]), True)
    """
    call = network.network if isinstance(network, Learner) else network
    if not isinstance(call, Network):
        found = hidden(call, inputs)
        return found.features, found.logits
    reading = _Reading(call)
    both = replace(call, module=reading, logits_of=lambda output: output, compiled=None)(inputs)
    features, logits = both.tensor_split([reading.width], dim=1)
    return features, logits


class _Reading(nn.Module):
    """A network that returns what goes into its last linear layer, `width` numbers, and its logits beside it.

    So a pass that is taken in pieces, by several processes or in a shorter type of numbers gives both.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.module, self.width = network.module, 0
        self._network = replace(network, ranks=None, pieces=None, precision=None, compiled=None)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return both in one tensor."""
        found = hidden(self._network, inputs)
        self.width = found.features.shape[1]
        return torch.cat([found.features, found.logits], dim=1)


def features_at(learner: Learner, inputs: Callable[[Tensor], Tensor], rows: Tensor, batch_size: int = 512) -> Tensor:
    """Return the features of the un-augmented inputs at these rows, on the CPU: evaluation mode, no gradients."""
    with evaluation_mode(learner.network.module):
        parts = [hidden(learner, inputs(part)).features.float().cpu() for part in rows.split(batch_size)]
    return torch.cat(parts)
