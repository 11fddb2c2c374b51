"""From settings to the two sets that every method sees: a few trusted examples and many noisy ones."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from karat.data.datasets import Dataset, Examples, load_dataset
from karat.data.label_files import load_labels
from karat.data.noise import ClassMap, NoisyLabels, corrupt, make_transition
from karat.data.trusted import check_trusted, trusted_split
from karat.errors import UserError


@dataclass(frozen=True, eq=False)
class NoisyTask:
    """What there is to learn from, and what to measure on.

    `noisy_rows` says where the noisy examples stand in the data that was loaded. `labels.true` is for reports alone; no
    method sees it.
    """

    dataset: Dataset
    trusted: Examples
    noisy: Examples
    noisy_rows: Tensor
    labels: NoisyLabels

    @property
    def mislabelled(self) -> Tensor | None:
        """Return which given labels are wrong; None where nobody knows."""
        return None if self.labels.true is None else self.labels.given != self.labels.true

    def fingerprint(self) -> str:
        """Return a hash of everything that is learned from, by which a resumed run knows its data again."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.noisy.inputs, self.noisy.labels, self.trusted.inputs, self.trusted.labels):
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()


def prepare_task(
    dataset: str,
    path: Path | None = None,
    limit: int | None = None,
    trusted_per_class: int = 10,
    noise: str = "none",
    rate: float = 0.0,
    class_map: ClassMap | None = None,
    matrix_file: Path | None = None,
    labels_file: Path | None = None,
    seed: int = 0,
) -> NoisyTask:
    """Load a dataset, split off its trusted examples and put noise on the labels of the others.

    The trusted examples are those that the data name, or else so many of each class, drawn at random.

    >>> task = prepare_task("digits", noise="uniform", rate=0.8)
    >>> len(task.trusted), len(task.noisy), round(task.labels.rate, 1)
    (100, 1200, 0.7)
    """
    if noise == "none" and rate:
        raise UserError(f"noise.rate is {rate}, but no noise is chosen: write noise.kind: uniform, for example.")
    if noise != "none" and labels_file is not None:
        raise UserError(f"Noise '{noise}' and a labels file exclude each other: leave noise.kind or labels_file out.")
    data = load_dataset(dataset, path, seed, limit)
    classes = len(data.classes)
    if noise == "asymmetric" and class_map is None:
        class_map = data.class_map
    transition = make_transition(noise, classes, rate, class_map, matrix_file)
    generator = torch.Generator().manual_seed(seed)
    if data.trusted is None:
        trusted_indices, noisy_indices = trusted_split(data.train.labels, trusted_per_class, generator)
    else:
        trusted_indices, noisy_indices = data.trusted.nonzero().flatten(), (~data.trusted).nonzero().flatten()
    trusted, noisy = data.train.subset(trusted_indices), data.train.subset(noisy_indices)
    check_trusted(trusted.labels, data.classes)
    if not len(noisy):
        raise UserError("All train examples are trusted: leave some noisy ones to learn from.")
    rows = data.rows[noisy_indices]
    if labels_file is not None:
        labels = load_labels(labels_file, rows, classes)
    elif noise == "none" and not data.curated:
        labels = NoisyLabels(noisy.labels, None, classes, None)
    else:
        labels = corrupt(noisy.labels, transition, generator)
    return NoisyTask(data, trusted, Examples(noisy.inputs, labels.given), rows, labels)
