"""The ledger: what training learned about every noisy example, a few numbers a row however long it takes."""

from typing import Any

import torch
from torch import Tensor

# An example's predictions are averaged over about five epochs: one is as noisy as its batch and its view.
MEMORY = 0.8


class Ledger:
    """A table of the noisy examples: last and mean weight and label trust, remembered prediction, times seen.

    Weights are stored as multiples of the average weight of their batch, so 1 is an ordinary example.

    >>> ledger = Ledger(examples=3, classes=2)
    >>> ledger.record(torch.tensor([2]), torch.tensor([[0.25, 0.75]]), weights=torch.tensor([1.0]))
    >>> ledger.times_seen.tolist(), ledger.probabilities[2].tolist()
    ([0, 0, 1], [0.25, 0.75])
    """

    def __init__(self, examples: int, classes: int) -> None:
        self.times_seen = torch.zeros(examples, dtype=torch.int64)
        self.probabilities = torch.full((examples, classes), 1 / classes)
        self.weight = torch.full((examples,), torch.nan)
        self.weight_sum = torch.zeros(examples)
        self.label_trust = torch.full((examples,), torch.nan)
        self.label_trust_sum = torch.zeros(examples)

    def record(
        self,
        indices: Tensor,
        probabilities: Tensor,
        weights: Tensor | None = None,
        label_trust: Tensor | None = None,
    ) -> None:
        """Enter what a step found out about the examples of its batch; an index may stand in it twice."""
        order = torch.arange(len(indices))
        unique, inverse = indices.unique(return_inverse=True)
        # the place of each example's last entry in this batch
        last = torch.zeros(len(unique), dtype=torch.int64).scatter_reduce_(0, inverse, order, "amax")
        latest = probabilities.cpu()[last]
        first_time = (self.times_seen[unique] == 0)[:, None]
        remembered = torch.where(first_time, latest, self.probabilities[unique].lerp(latest, 1 - MEMORY))
        self.probabilities[unique] = remembered
        self.times_seen.index_add_(0, indices, torch.ones_like(indices))
        if weights is not None:
            relative = weights.cpu() * len(weights)
            self.weight[unique] = relative[last]
            self.weight_sum.index_add_(0, indices, relative)
        if label_trust is not None:
            trust = label_trust.cpu()
            self.label_trust[unique] = trust[last]
            self.label_trust_sum.index_add_(0, indices, trust)

    @property
    def mean_weight(self) -> Tensor:
        """Return the mean weight of each example; NaN where the method has none or never saw it."""
        return torch.where(self.weight.isnan(), torch.nan, self.weight_sum / self.times_seen)

    @property
    def mean_label_trust(self) -> Tensor:
        """Return the mean label trust of each example; NaN where the method has none or never saw it."""
        return torch.where(self.label_trust.isnan(), torch.nan, self.label_trust_sum / self.times_seen)

    def state_dict(self) -> dict[str, Any]:
        """Return all columns."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back the columns that `state_dict` returned."""
        for name, column in state.items():
            getattr(self, name).copy_(column)
