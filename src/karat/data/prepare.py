"""From settings to the two sets that every method sees: a few trusted examples and many noisy ones."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from karat.data.datasets import Dataset, Examples, load_dataset
from karat.data.label_files import load_labels
from karat.data.noise import NoisyLabels, corrupt, make_transition
from karat.data.trusted import check_trusted, trusted_split


@dataclass(frozen=True, eq=False)
class NoisyTask:
    """What there is to learn from, and what to measure on.

    `noisy_indices` and `trusted_indices` say where the examples stand in the dataset's train part. `labels.true` is
    for reports alone; no method sees it.
    """

    dataset: Dataset
    trusted: Examples
    trusted_indices: Tensor
    noisy: Examples
    noisy_indices: Tensor
    labels: NoisyLabels

    @property
    def mislabelled(self) -> Tensor | None:
        """Return which given labels are wrong; None where nobody knows."""
        return None if self.labels.true is None else self.labels.given != self.labels.true


def prepare_task(
    dataset: str,
    path: Path | None = None,
    limit: int | None = None,
    trusted_per_class: int = 10,
    noise: str = "none",
    rate: float = 0.0,
    class_map: dict[int, int] | None = None,
    matrix_file: Path | None = None,
    labels_file: Path | None = None,
    seed: int = 0,
) -> NoisyTask:
    """Load a dataset, split off its trusted examples and put noise on the labels of the others.

    >>> task = prepare_task("digits", noise="uniform", rate=0.8)
    >>> len(task.trusted), len(task.noisy), round(task.labels.rate, 1)
    (100, 1200, 0.7)
    """
    data = load_dataset(dataset, path, seed, limit)
    generator = torch.Generator().manual_seed(seed)
    classes = len(data.classes)
    transition = make_transition(noise, classes, rate, class_map, matrix_file)
    trusted_indices, noisy_indices = trusted_split(data.train.labels, trusted_per_class, generator)
    trusted, noisy = data.train.subset(trusted_indices), data.train.subset(noisy_indices)
    check_trusted(trusted.labels, data.classes)
    if labels_file is None:
        labels = corrupt(noisy.labels, transition, generator)
    else:
        labels = load_labels(labels_file, len(noisy), classes)
    return NoisyTask(data, trusted, trusted_indices, Examples(noisy.inputs, labels.given), noisy_indices, labels)
