"""Confident learning (Northcutt et al. 2021): drop the examples that cross-validation calls mislabelled."""

import warnings
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from karat.errors import UserError
from karat.methods.method import Method, Phase, Task, logits_at
from karat.methods.settings import CleanlabSettings
from karat.methods.step import Batch, Learner, StepResult
from karat.methods.supervised import supervised


class Cleanlab(Method):
    """Train a network without each fold, predict that fold, drop the label issues, train anew on the rest.

    The issues are those of the package cleanlab, "prune by noise rate". Uses no trusted examples.
    """

    remembers = ("folds", "probabilities")

    def __init__(self, task: Task, settings: CleanlabSettings) -> None:
        super().__init__(task, settings)
        if find_spec("cleanlab") is None:
            raise UserError("Method cleanlab needs the package cleanlab: run pip install 'karat[cleanlab]'.")
        self.folds = torch.zeros(len(task), dtype=torch.long)
        self.probabilities = torch.zeros(len(task), task.classes)

    def phases(self, settings: CleanlabSettings) -> tuple[Phase, ...]:
        """Return the training without each fold and the training on what is kept."""
        return (*[Phase(settings.fold_share)] * settings.folds, Phase(1 - settings.fold_share * settings.folds))

    def begin_phase(
        self, number: int, learner: Learner, settings: CleanlabSettings, generator: torch.Generator
    ) -> Tensor | None:
        """Predict the fold that the network has not seen; return the rows outside the next one, at last those kept."""
        if number == 0:
            self.folds = random_folds(self.task.given_labels, settings.folds, generator)
        else:
            unseen = (self.folds == number - 1).nonzero().squeeze(1)
            self.probabilities[unseen] = logits_at(learner, self.task.noisy_inputs, unseen).softmax(dim=1)
        kept = self.folds != number if number < settings.folds else ~issues(self.task.given_labels, self.probabilities)
        return kept.nonzero().squeeze(1)

    def step(self, learner: Learner, batch: Batch, settings: Any, generator: torch.Generator) -> StepResult:
        """Descend the cross-entropy of the given labels; only the rows differ from plain training."""
        return supervised(learner, batch, settings, generator)


def random_folds(labels: Tensor, folds: int, generator: torch.Generator) -> Tensor:
    """Return each example's fold; the examples of every class are dealt out evenly.

    >>> random_folds(torch.tensor([0, 0, 1, 1]), 2, torch.Generator()).view(2, 2).sum(dim=1)
    tensor([1, 1])
    """
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    dealt = torch.empty_like(labels)
    dealt[by_class] = torch.arange(len(labels)) % folds
    return dealt


def issues(given_labels: Tensor, probabilities: Tensor) -> Tensor:
    """Return which labels confident learning calls wrong; every class keeps an example at least."""
    from cleanlab.filter import find_label_issues

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a class has too few examples to drop one is no news to the user
        found = find_label_issues(
            given_labels.numpy(), probabilities.double().numpy(), min_examples_per_class=1, n_jobs=1
        )
    return torch.from_numpy(found)
