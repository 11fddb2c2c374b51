"""Long vectors, such as embeddings, with columns of one deviation or as they came: unseen labels tell which.

Columns of a table are in units of their own, so they are standardised. What an encoder made has a scale that means
something: columns in which its vectors hardly differ are noise, and standardised they are as loud as all others.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.algorithm.targets import one_hot
from karat.methods.karat.classifier import Read, SoftlyLabelled, fit_classifier
from karat.methods.karat.constants import ClassifierConstants, ScaleConstants
from karat.methods.method import Task


class OwnScale(NamedTuple):
    """The means and deviations that the columns of vectors had before they were standardised."""

    mean: Tensor
    deviation: Tensor

    def of(self, inputs: Tensor) -> Tensor:
        """Return vectors in their own scale, all of one length.

        >>> OwnScale(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 4.0])).of(torch.tensor([[0.0, 1.0]]))
        tensor([[0.8485, 1.1314]])
        """
        own = torch.addcmul(self.mean, inputs.float().cpu(), self.deviation)
        return F.normalize(own, dim=1).mul_(own.shape[1] ** 0.5)

    def not_standardised(self, read: Read) -> Read:
        """Return what reads vectors in their own scale, each with its length and without the mean."""
        return lambda rows: read(rows).float().cpu() * self.deviation

    def seen_in(self, task: Task) -> Task:
        """Return the task with vectors in their own scale, all of one length."""
        return replace(
            task,
            noisy_inputs=lambda rows: self.of(task.noisy_inputs(rows)),
            trusted_inputs=lambda rows: self.of(task.trusted_inputs(rows)),
            modality="embeddings",
        )


def own_scale(
    task: Task, generator: torch.Generator, constants: ScaleConstants, classifier: ClassifierConstants
) -> OwnScale | None:
    """Return the scale of the vectors where it makes unseen labels likelier by more than a standard error."""
    if task.units is None:
        return None
    own = OwnScale(*task.units)
    rows = torch.randperm(len(task), generator=generator)[: constants.sample]
    inputs, labels = task.noisy_inputs(rows).float().cpu(), task.given_labels[rows]
    short = replace(classifier, iterations=constants.iterations, strength=constants.strength)
    gains = _likelihoods(own.of(inputs), labels, task.classes, short) - _likelihoods(
        inputs, labels, task.classes, short
    )
    return own if gains.mean() > gains.std() / len(gains) ** 0.5 else None


def _likelihoods(inputs: Tensor, labels: Tensor, classes: int, constants: ClassifierConstants) -> Tensor:
    """Return the log-likelihood of each label by a classifier that learned the other half of them."""
    targets, found = one_hot(labels, classes, like=inputs), torch.empty(len(labels))
    halves = torch.arange(len(labels)).tensor_split(2)
    for learned, asked in (halves, halves[::-1]):
        part = SoftlyLabelled(inputs[learned].__getitem__, targets[learned])
        weight, bias = fit_classifier([part], standardised=False, constants=constants)
        log_p = (inputs[asked] @ weight.T + bias).log_softmax(dim=1)
        found[asked] = log_p.gather(1, labels[asked, None]).squeeze(1)
    return found
