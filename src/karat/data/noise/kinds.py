"""Every kind of noise by its name: a record of the settings that it reads, and how it is drawn.

A new kind is a record here with a line in the table, and its name, with new settings if it has some, in NoiseSettings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from karat.data.examples import Dataset, Examples
from karat.data.images import Inputs
from karat.data.noise.instance import corrupt_by_instance
from karat.data.noise.label_files import load_labels
from karat.data.noise.labels import NoisyLabels, corrupt
from karat.data.noise.open_set import replace_images
from karat.data.readers import read_matrix
from karat.data.settings import NoiseSettings, changed_settings
from karat.errors import UserError, choose
from karat.noise_matrix import (
    ClassMap,
    asymmetric_transition,
    check_transition,
    symmetric_transition,
    uniform_transition,
)

Labeller = Callable[[Dataset], Tensor]  # returns a label for each train example, as semantic noise gives it


@dataclass(frozen=True, eq=False)
class Clean:
    """The examples to put noise on: where they stand in the dataset's train part, and what they are.

    `limited`: the dataset was larger. `labeller` is that of semantic noise, which needs a trained network.
    """

    dataset: Dataset
    indices: Tensor
    examples: Examples
    limited: bool = False
    labeller: Labeller | None = None

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return len(self.dataset.classes)


Drawn = tuple[Inputs, NoisyLabels]


class Noise(Protocol):
    """A kind of noise with its settings, which are those of `NoiseSettings` that it reads."""

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Return inputs and given labels; the inputs change in open-set noise alone."""
        ...


@dataclass(frozen=True)
class NoNoise:
    """The labels as they are, or those of a file."""

    labels_file: Path | None
    labels_column: str | None

    def __post_init__(self) -> None:
        if self.labels_column is not None and self.labels_file is None:
            raise UserError("noise.labels_column names a column of a file: set noise.labels_file, too.")

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Take the labels; nobody knows which of them are right unless the dataset is curated."""
        dataset, examples = clean.dataset, clean.examples
        if self.labels_file is not None:
            labels = load_labels(
                self.labels_file,
                dataset.rows[clean.indices],
                clean.classes,
                column=self.labels_column,
                names=dataset.classes,
                count=None if clean.limited else len(dataset.train),  # what a limit left out is forgotten
                known=examples.labels if dataset.curated else None,
            )
            return examples.inputs, labels
        if not dataset.curated:
            return examples.inputs, NoisyLabels(examples.labels, None, clean.classes, None)
        return _by_matrix(clean, torch.eye(clean.classes, dtype=torch.float64), generator)


@dataclass(frozen=True)
class Uniform:
    """A share of the labels is redrawn from all classes."""

    rate: float

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Draw each label from the row of its class."""
        return _by_matrix(clean, uniform_transition(clean.classes, self.rate), generator)


@dataclass(frozen=True)
class Symmetric:
    """A share of the labels is redrawn from the other classes."""

    rate: float

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Draw each label from the row of its class."""
        return _by_matrix(clean, symmetric_transition(clean.classes, self.rate), generator)


@dataclass(frozen=True)
class Asymmetric:
    """A share of some classes becomes one other class."""

    rate: float
    class_map: ClassMap | None

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Draw each label from the row of its class; without a map, the dataset's usual one."""
        class_map = clean.dataset.class_map if self.class_map is None else self.class_map
        return _by_matrix(clean, asymmetric_transition(clean.classes, self.rate, class_map), generator)


@dataclass(frozen=True)
class Transition:
    """The labels follow a matrix of the user's."""

    matrix_file: Path | None

    def __post_init__(self) -> None:
        if self.matrix_file is None:
            raise UserError("Noise 'transition' needs a matrix: set noise.matrix_file to an .npy or .csv file.")

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Draw each label from the row of its class."""
        assert self.matrix_file is not None
        transition = torch.from_numpy(read_matrix(self.matrix_file))
        check_transition(transition, clean.classes)
        return _by_matrix(clean, transition, generator)


@dataclass(frozen=True)
class Instance:
    """The example itself decides how often and into what its label flips."""

    rate: float

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Draw each label from the chances of its example."""
        inputs, labels = clean.examples.inputs, clean.examples.labels
        return inputs, corrupt_by_instance(inputs, labels, clean.classes, self.rate, generator)


@dataclass(frozen=True)
class OpenSet:
    """A share of the images becomes images of something else."""

    rate: float
    source: str | None
    source_path: Path | None

    def __post_init__(self) -> None:
        if self.source is None:
            raise UserError("Noise 'open_set' needs foreign images: set noise.source to a dataset, file or folder.")

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Put foreign images in the place of some; the labels stay."""
        assert self.source is not None
        if clean.dataset.name in self.source.split("+"):
            raise UserError(f"The data are {clean.dataset.name} themselves: choose another noise.source.")
        inputs, labels = clean.examples.inputs, clean.examples.labels
        return replace_images(inputs, labels, clean.classes, self.rate, self.source, self.source_path, generator)


@dataclass(frozen=True)
class Semantic:
    """A network trained on few labels gives all of them."""

    fraction: float
    labeller: str
    labeller_epochs: int

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise UserError(f"noise.fraction is {self.fraction}: write a share above 0 and below 1, such as 0.05.")
        if self.labeller_epochs < 1:
            raise UserError(f"noise.labeller_epochs is {self.labeller_epochs}: write 1 or more.")

    def draw(self, clean: Clean, generator: torch.Generator) -> Drawn:
        """Ask the labeller, which has trained the network."""
        if clean.labeller is None:
            raise UserError("Noise 'semantic' needs a labeller: prepare the task with karat.training.tasks.task_of.")
        given = clean.labeller(clean.dataset)[clean.indices]
        return clean.examples.inputs, NoisyLabels(given, clean.examples.labels, clean.classes, None)


KINDS: Mapping[str, type[Any]] = {
    "none": NoNoise,
    "uniform": Uniform,
    "symmetric": Symmetric,
    "asymmetric": Asymmetric,
    "transition": Transition,
    "instance": Instance,
    "open_set": OpenSet,
    "semantic": Semantic,
}


def noise_of(settings: NoiseSettings) -> Noise:
    """Return the noise that the settings name; refuse a setting that this kind does not read.

    >>> noise_of(NoiseSettings("uniform", rate=0.8))
    Uniform(rate=0.8)
    >>> noise_of(NoiseSettings("uniform", fraction=0.1))
    Traceback (most recent call last):
    karat.errors.UserError: Noise 'uniform' does not read noise.fraction: leave it out, or write noise.kind: semantic.
    """
    kind = choose("noise", settings.kind, KINDS)
    for name in changed_settings(settings):
        if name not in ("kind", *_read_by(kind)):
            readers = " or ".join(other for other in KINDS if name in _read_by(KINDS[other]))
            raise UserError(
                f"Noise '{settings.kind}' does not read noise.{name}: leave it out, or write noise.kind: {readers}."
            )
    noise: Noise = kind(**{name: getattr(settings, name) for name in _read_by(kind)})
    return noise


def _read_by(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _by_matrix(clean: Clean, transition: Tensor, generator: torch.Generator) -> Drawn:
    return clean.examples.inputs, corrupt(clean.examples.labels, transition, generator)
