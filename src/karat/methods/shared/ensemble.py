"""Several networks as one model: their mean prediction."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from karat.algorithm.pseudo_labels import log_probability


class Ensemble(nn.Module):
    """Return `log mean_m softmax(z_m)`, which are logits of the mean prediction; the members are shared, not copied.

    >>> always_first, undecided = (lambda x: torch.tensor([[99.0, 0.0]])), (lambda x: torch.zeros(1, 2))
    >>> log_mean_prediction([always_first(None), undecided(None)]).exp()
    tensor([[0.7500, 0.2500]])
    """

    def __init__(self, *members: nn.Module) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of the mean prediction."""
        return log_mean_prediction([member(inputs) for member in self.members])


def log_mean_prediction(logits: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean of the softmax of several logits of the same examples."""
    log_probabilities = torch.stack([log_probability(z) for z in logits])
    return torch.logsumexp(log_probabilities, dim=0) - math.log(len(logits))
