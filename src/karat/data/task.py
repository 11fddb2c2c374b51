"""From settings to the two sets that every method sees: a few trusted examples and many noisy ones."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from karat.data.corrections import check_corrections, corrected, read_corrections
from karat.data.datasets import load_data
from karat.data.examples import Dataset, Examples
from karat.data.images import ImageFiles
from karat.data.noise.kinds import Clean, Labeller, noise_of
from karat.data.noise.labels import NoisyLabels
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.trusted import trusted_split
from karat.errors import UserError


@dataclass(frozen=True, eq=False)
class NoisyTask:
    """What there is to learn from, and what to measure on.

    `noisy_rows` says where the noisy examples stand in the data that was loaded. `labels.true` is for reports alone; no
    method sees it. `validation` are noisy examples that nothing is learned from, where some are held out; their labels
    are noisy too. `origin` says where the inputs come from, where these are features of images.
    """

    dataset: Dataset
    trusted: Examples
    noisy: Examples
    noisy_rows: Tensor
    labels: NoisyLabels
    validation: Examples | None = None
    validation_rows: Tensor | None = None
    validation_labels: NoisyLabels | None = None
    origin: "Origin | None" = None

    @property
    def seen(self) -> "NoisyTask":
        """Return the task whose inputs a person sees and a model in use is given."""
        return self if self.origin is None else self.origin.task

    def all_labels(self) -> tuple[Tensor, NoisyLabels]:
        """Return rows and labels of all noisy examples, those held out included, as a label file should have them."""
        if self.validation_rows is None or self.validation_labels is None:
            return self.noisy_rows, self.labels
        rows = torch.cat([self.noisy_rows, self.validation_rows])
        true = self.labels.true, self.validation_labels.true
        joined = replace(
            self.labels,
            given=torch.cat([self.labels.given, self.validation_labels.given]),
            true=None if true[0] is None or true[1] is None else torch.cat([true[0], true[1]]),
        )
        order = rows.argsort()
        return rows[order], joined.subset(order)

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the user calls the noisy examples: ids or paths, or else their row numbers."""
        return self.dataset.names_of(self.noisy_rows)

    @property
    def trusted_rows(self) -> Tensor:
        """Return where the trusted examples stand in the data that was loaded."""
        rows, _ = self.all_labels()
        return self.dataset.rows[~torch.isin(self.dataset.rows, rows)]

    @property
    def trusted_names(self) -> tuple[str, ...]:
        """Return what the user calls the trusted examples."""
        return self.dataset.names_of(self.trusted_rows)

    @property
    def mislabelled(self) -> Tensor | None:
        """Return which given labels are wrong; None where nobody knows."""
        return None if self.labels.true is None else self.labels.given != self.labels.true

    def fingerprint(self) -> str:
        """Return a hash of everything that is learned from, by which a resumed run knows its data again.

        Image files count with their names and sizes in bytes: to read all pixels would take as long as an epoch.
        """
        if self.origin is not None:
            return self.origin.task.fingerprint()
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.noisy.inputs, self.noisy.labels, self.trusted.inputs, self.trusted.labels):
            content = part.contiguous().numpy().tobytes() if isinstance(part, Tensor) else part.fingerprint()
            digest.update(content)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Origin:
    """Where features come from: the task of the images, and the network that looked at them.

    `model` is its name, `described` what makes it again, `views` those of an image whose features were averaged.
    """

    task: NoisyTask
    network: nn.Module
    model: str
    described: dict[str, Any]
    views: str


def prepare_task(
    data: DataSettings, noise: NoiseSettings, seed: int = 0, labeller: Labeller | None = None
) -> NoisyTask:
    """Load a dataset, split off its trusted examples and put noise on the labels of the others.

    The trusted examples are those that the data name, or else so many of each class, drawn at random; there may be
    none. The labeller gives the labels of semantic noise, which needs a trained network.

    >>> task = prepare_task(DataSettings("digits"), NoiseSettings("uniform", rate=0.8))
    >>> len(task.trusted), len(task.noisy), round(task.labels.rate, 1)
    (100, 1200, 0.7)
    """
    noise_of(noise)  # a mistake is said before the data are loaded
    check_corrections(data, noise)
    _check_share(data.validation_share)
    corrections = None if data.corrections is None else read_corrections(data.corrections)
    dataset = load_data(data, seed)
    if corrections is not None:
        dataset = corrected(dataset, corrections)
    return make_task(dataset, data, noise, seed, labeller)


def make_task(
    dataset: Dataset,
    data: DataSettings | None = None,
    noise: NoiseSettings | None = None,
    seed: int = 0,
    labeller: Labeller | None = None,
) -> NoisyTask:
    """Split a dataset that is loaded, such as one from memory, into trusted and noisy examples, and draw the noise.

    >>> import numpy as np
    >>> from karat.data.sources.memory import from_memory
    >>> task = make_task(from_memory(np.eye(5), ["cat", "dog", "cat", "dog", "dog"], [True, True, False, False, False]))
    >>> task.trusted.labels, task.noisy.labels, tuple(task.noisy.inputs.shape)
    (tensor([0, 1]), tensor([0, 1, 1]), (3, 5))
    """
    data, noise = data or DataSettings(), noise or NoiseSettings()
    _check_share(data.validation_share)
    generator = torch.Generator().manual_seed(seed)
    if dataset.trusted is None:
        drawn = data.drawn_per_class(dataset.curated)
        trusted_indices, indices = trusted_split(dataset.train.labels, drawn, generator)
    else:
        trusted_indices, indices = dataset.trusted.nonzero().flatten(), (~dataset.trusted).nonzero().flatten()
    trusted = dataset.train.subset(trusted_indices)
    if isinstance(trusted.inputs, ImageFiles):
        trusted = replace(trusted, inputs=trusted.inputs.apart())
    if not len(indices):
        raise UserError("All train examples are trusted: leave some noisy ones to learn from.")
    # Before the noise is drawn: the same seed holds the same examples out, whatever the noise.
    kept, held_out = _hold_out(len(indices), data.validation_share, generator)
    clean = Clean(dataset, indices, dataset.train.subset(indices), data.limit is not None, labeller)
    inputs, labels = noise_of(noise).draw(clean, generator)
    noisy, rows = Examples(inputs, labels.given), dataset.rows[indices]
    if not len(held_out):
        return NoisyTask(dataset, trusted, noisy, rows, labels)
    return NoisyTask(
        dataset,
        trusted,
        noisy.subset(kept),
        rows[kept],
        labels.subset(kept),
        validation=noisy.subset(held_out),
        validation_rows=rows[held_out],
        validation_labels=labels.subset(held_out),
    )


def _check_share(share: float) -> None:
    if not 0 <= share < 0.9:
        raise UserError(f"data.validation_share is {share}: write a share from 0 to below 0.9.")


def _hold_out(count: int, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return which of so many examples are kept and which are held out, both sorted; a share of 0 draws nothing."""
    if share == 0:
        return torch.arange(count), torch.arange(0)
    number = round(share * count)
    if not 0 < number < count:
        raise UserError(
            f"data.validation_share {share} of {count} noisy examples holds out {number}: "
            "choose a share that holds out at least one example and leaves one."
        )
    order = torch.randperm(count, generator=generator)
    return order[number:].sort().values, order[:number].sort().values
