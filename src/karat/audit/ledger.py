"""The ledger: what training learned about every example, a few numbers a row however long it takes.

A large column is mapped to a temporary file, so that it need not fit into memory.
"""

import os
import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from karat.errors import UserError

# An example's predictions are averaged over about five epochs: one is as noisy as its batch and its view.
MEMORY = 0.8
MAPPED_FROM = 64 * 2**20  # bytes; smaller columns stay in memory
HALF_FROM = 100  # more classes than this are remembered in 16 bits: two bytes a class and row


class LedgerColumn(NamedTuple):
    """How a column starts and is kept: one value a row, or one for each class."""

    dtype: str
    start: float
    per_class: bool = False


COLUMNS: Mapping[str, LedgerColumn] = {
    "times_seen": LedgerColumn("int32", 0),
    "times_weighted": LedgerColumn("int32", 0),
    "times_trusted": LedgerColumn("int32", 0),
    "pseudo_label": LedgerColumn("int32", -1),
    "pseudo_confidence": LedgerColumn("float32", np.nan),
    "weight": LedgerColumn("float32", np.nan),
    "weight_sum": LedgerColumn("float32", 0),
    "label_trust": LedgerColumn("float32", np.nan),
    "label_trust_sum": LedgerColumn("float32", 0),
    "loss_sum": LedgerColumn("float32", 0),
    "probabilities": LedgerColumn("float32", np.nan, per_class=True),  # starts as 1/classes
    "class_scores": LedgerColumn("float32", np.nan, per_class=True),
}


class Ledger:
    """A table of the examples: weight, label trust, prediction, pseudo label, best class, loss, times seen.

    Weights are stored as multiples of the average weight of their batch, so 1 is an ordinary example. Predictions and
    class scores are exponential averages with MEMORY; scores are centred and scaled to length 1 before.
    `folder` is where a large ledger has its temporary file, which vanishes with the process.

    >>> ledger = Ledger(examples=3, classes=2)
    >>> ledger.record(torch.tensor([2]), torch.tensor([[0.0, 0.0]]), torch.tensor([1]), weights=torch.tensor([1.0]))
    >>> ledger.times_seen.tolist(), ledger.probabilities[2].tolist()
    ([0, 0, 1], [0.5, 0.5])
    """

    times_seen: Tensor
    times_weighted: Tensor
    times_trusted: Tensor
    pseudo_label: Tensor
    pseudo_confidence: Tensor
    weight: Tensor
    weight_sum: Tensor
    label_trust: Tensor
    label_trust_sum: Tensor
    loss_sum: Tensor
    probabilities: Tensor
    class_scores: Tensor

    def __init__(self, examples: int, classes: int, folder: Path | None = None) -> None:
        self.classes = classes
        for name, column in COLUMNS.items():
            dtype = "float16" if column.per_class and classes > HALF_FROM else column.dtype
            shape = (examples, classes) if column.per_class else (examples,)
            values = _empty(shape, dtype, folder)
            values.fill(1 / classes if name == "probabilities" else column.start)
            setattr(self, name, torch.from_numpy(values))

    def __len__(self) -> int:
        return len(self.times_seen)

    def record(
        self,
        indices: Tensor,
        logits: Tensor,
        given_labels: Tensor,
        weights: Tensor | None = None,
        label_trust: Tensor | None = None,
        pseudo_labels: Tensor | None = None,
        class_scores: Tensor | None = None,
    ) -> None:
        """Enter what a step found out about the examples of its batch; an index may stand in it twice."""
        logits = logits.float().cpu()
        order = torch.arange(len(indices))
        unique, inverse = indices.unique(return_inverse=True)
        # the place of each example's last entry in this batch
        last = torch.zeros(len(unique), dtype=torch.int64).scatter_reduce_(0, inverse, order, "amax")
        once = torch.ones_like(indices, dtype=torch.int32)
        _remember(self.probabilities, unique, logits.softmax(dim=1)[last], self.times_seen[unique] == 0)
        losses = F.cross_entropy(logits, given_labels.cpu(), reduction="none")
        self.loss_sum.index_add_(0, indices, losses)
        self.times_seen.index_add_(0, indices, once)
        if weights is not None:
            relative = weights.float().cpu() * len(weights)
            self.weight[unique] = relative[last]
            self.weight_sum.index_add_(0, indices, relative)
            self.times_weighted.index_add_(0, indices, once)
        if label_trust is not None:
            trust = label_trust.float().cpu()
            self.label_trust[unique] = trust[last]
            self.label_trust_sum.index_add_(0, indices, trust)
            self.times_trusted.index_add_(0, indices, once)
        if pseudo_labels is not None:
            confidence, label = pseudo_labels.float().cpu()[last].max(dim=1)
            self.pseudo_label[unique] = label.int()
            self.pseudo_confidence[unique] = confidence
        if class_scores is not None:
            scores = class_scores.float().cpu()[last]
            scores = F.normalize(scores - scores.mean(dim=1, keepdim=True))
            _remember(self.class_scores, unique, scores, self.class_scores[unique, 0].isnan())

    def predict(self, probabilities: Tensor, labels: Tensor) -> None:
        """Enter predictions for all examples at once, such as those of the trusted ones after an epoch."""
        everything = torch.arange(len(self))
        self.record(everything, probabilities.clamp(min=1e-30).log(), labels)

    def fill(self, rows: Tensor, probabilities: Tensor) -> None:
        """Enter predictions of examples that no step has seen; they stay unseen."""
        self.probabilities[rows] = probabilities.to(self.probabilities.dtype)

    @property
    def mean_weight(self) -> Tensor:
        """Return the mean weight of each example; NaN where the method has none or never saw it."""
        return self.weight_sum / self.times_weighted

    @property
    def mean_label_trust(self) -> Tensor:
        """Return the mean label trust of each example; NaN where the method has none or never saw it."""
        return self.label_trust_sum / self.times_trusted

    @property
    def mean_loss(self) -> Tensor:
        """Return the mean cross-entropy of the given label; NaN where an example was never seen."""
        return self.loss_sum / self.times_seen

    @property
    def helpful_class(self) -> Tensor:
        """Return the class that as its label would help the trusted examples most; -1 where nobody knows."""
        unknown = self.class_scores[:, 0].isnan()
        return torch.where(unknown, -1, self.class_scores.nan_to_num(0.0).argmax(dim=1))

    def state_dict(self) -> dict[str, Any]:
        """Return all columns; as in torch they are the ledger itself, not copies."""
        return {name: getattr(self, name) for name in COLUMNS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back the columns that `state_dict` returned."""
        own = self.state_dict()
        if {name: column.shape for name, column in state.items()} != {name: own[name].shape for name in own}:
            raise UserError("The ledger belongs to other data or to another version of Karat: start a new run.")
        for name, column in state.items():
            own[name].copy_(column)


def _empty(shape: tuple[int, ...], dtype: str, folder: Path | None) -> "np.ndarray[Any, Any]":
    """Return an array in memory, or a large one mapped to a file without a name: a killed run leaves nothing."""
    if prod(shape) * np.dtype(dtype).itemsize < MAPPED_FROM:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=folder, prefix=".ledger-") as file:
        if hasattr(os, "posix_fallocate"):  # a full disk is said now; later it would end the process by SIGBUS
            os.posix_fallocate(file.fileno(), 0, prod(shape) * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _remember(column: Tensor, rows: Tensor, latest: Tensor, first_time: Tensor) -> None:
    """Move rows of an exponential average towards the latest values; the first ones are taken as they are."""
    average = column[rows].float().nan_to_num(0.0).lerp(latest, 1 - MEMORY)
    column[rows] = torch.where(first_time[:, None], latest, average).to(column.dtype)
