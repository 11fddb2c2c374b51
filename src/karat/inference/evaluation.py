"""How good a model is: accuracy, loss and probabilities over a whole set, batch by batch."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from karat.algorithm.network import evaluation_mode
from karat.data.images import Inputs, read_ahead
from karat.errors import UserError

MOST_NUMBERS = 512 * 3 * 64 * 64  # of the inputs of a batch


@dataclass(frozen=True)
class Accuracy:
    """What `evaluate` found: accuracies as fractions in [0, 1], mean cross-entropy, number of examples."""

    top1: float
    top5: float
    loss: float
    count: int


def evaluate(model: nn.Module, inputs: Inputs, labels: Tensor, batch_size: int = 512) -> Accuracy:
    """Measure a model that returns logits on labelled examples; its mode is put back, no gradient is kept.

    `top5` asks for the label among the min(5, classes) largest logits. Batches go to the model's device.

    >>> evaluate(nn.Identity(), torch.eye(6), torch.tensor([0, 1, 2, 3, 4, 0])).top1  # 5 of 6 are right
    0.8333333333333334
    """
    if len(inputs) != len(labels) or len(labels) == 0:
        raise UserError(
            f"Cannot evaluate on {len(inputs)} inputs and {len(labels)} labels; give at least one input "
            "and one label for each."
        )
    top1 = top5 = 0
    loss = 0.0
    smallest, largest = int(labels.min()), int(labels.max())
    batch_size = _fitting(batch_size, inputs)
    with evaluation_mode(model):
        for batch, given in zip(_batches(model, inputs, batch_size), labels.split(batch_size), strict=True):
            logits = model(batch).float()
            target, classes = given.to(logits.device), logits.shape[1]
            if smallest < 0 or largest >= classes:
                raise UserError(
                    f"The labels reach from {smallest} to {largest}, but the model has {classes} classes; "
                    f"use labels from 0 to {classes - 1}."
                )
            hits = logits.topk(min(5, classes)).indices == target[:, None]
            top1 += int(hits[:, 0].sum())
            top5 += int(hits.sum())
            loss += float(cross_entropy(logits, target, reduction="sum"))
    count = len(labels)
    return Accuracy(top1=top1 / count, top5=top5 / count, loss=loss / count, count=count)


def predict_probabilities(
    model: nn.Module, inputs: Inputs, batch_size: int = 512, report: Callable[[int], None] | None = None
) -> Tensor:
    """Return the softmax of a model's logits for all inputs, on the CPU in float32; its mode is put back.

    `report` is called after each batch with the number of its rows.

    >>> predict_probabilities(nn.Identity(), torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """
    batch_size = _fitting(batch_size, inputs)
    with evaluation_mode(model):
        parts = []
        for batch in _batches(model, inputs, batch_size):
            parts.append(model(batch).float().softmax(1).cpu())
            if report is not None:
                report(len(batch))
    return torch.cat(parts)


class ClassScores(NamedTuple):
    """How well one class is recognised; precision is None where nothing was predicted to be of it."""

    name: str
    examples: int
    precision: float | None
    recall: float | None


class Confusion(NamedTuple):
    """How often one class was taken for another."""

    true: str
    predicted: str
    times: int


@dataclass(frozen=True)
class Evaluation:
    """Accuracy as a whole and class by class, and the pairs of classes that are confused most often."""

    accuracy: Accuracy
    classes: tuple[ClassScores, ...]
    confusions: tuple[Confusion, ...]


def evaluate_probabilities(probabilities: Tensor, labels: Tensor, classes: Sequence[str], most: int = 10) -> Evaluation:
    """Compare predicted probabilities with labels.

    >>> found = evaluate_probabilities(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 0, 1]), ["cat", "dog"])
    >>> found.accuracy.top1, found.classes[1], found.confusions
    (0.75, ClassScores(name='dog', examples=1, precision=0.5, recall=1.0),
     (Confusion(true='cat', predicted='dog', times=1),))
    """
    accuracy = evaluate(nn.Identity(), probabilities.clamp(min=torch.finfo(torch.float32).tiny).log(), labels)
    predicted, numbers = probabilities.argmax(dim=1), range(len(classes))
    precision, recall, _, examples = precision_recall_fscore_support(
        labels, predicted, labels=numbers, zero_division=math.nan
    )
    scores = tuple(
        ClassScores(name, int(count), *(None if math.isnan(share) else float(share) for share in shares))
        for name, count, *shares in zip(classes, examples, precision, recall, strict=True)
    )
    wrong = confusion_matrix(labels, predicted, labels=numbers)  # [true, predicted]
    np.fill_diagonal(wrong, 0)
    places = np.argsort(-wrong, axis=None, kind="stable")[:most]
    confusions = tuple(
        Confusion(classes[true], classes[taken_for], int(wrong[true, taken_for]))
        for true, taken_for in zip(*np.unravel_index(places, wrong.shape), strict=True)
        if wrong[true, taken_for]
    )
    return Evaluation(accuracy, scores, confusions)


def _batches(model: nn.Module, inputs: Inputs, batch_size: int) -> Iterator[Tensor]:
    """Yield the inputs slice by slice, on the model's device; no inputs at all are one empty batch."""
    device = next((tensor.device for tensor in chain(model.parameters(), model.buffers())), None)
    rows = (slice(start, start + batch_size) for start in range(0, max(len(inputs), 1), batch_size))
    for batch in read_ahead(inputs, rows):
        yield batch if device is None else batch.to(device)


def _fitting(batch_size: int, inputs: Inputs) -> int:
    """Return how many inputs go into a network at once: fewer large images, whose layers would fill the memory.

    >>> _fitting(512, torch.zeros(1, 3, 32, 32)), _fitting(512, torch.zeros(1, 3, 224, 224))
    (512, 41)
    """
    numbers = math.prod(inputs.shape[1:])
    return max(1, min(batch_size, MOST_NUMBERS // max(1, numbers)))
