"""Every kind of noise by its name: from the noisy examples to what they become and which labels they get."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from karat.data.examples import Dataset, Examples
from karat.data.images import Inputs
from karat.data.noise.instance import corrupt_by_instance
from karat.data.noise.label_files import load_labels
from karat.data.noise.labels import NOISES, NoisyLabels, corrupt, make_transition
from karat.data.noise.open_set import replace_images
from karat.data.settings import DataSettings, NoiseSettings
from karat.errors import UserError, choose
from karat.noise_matrix import ClassMap

Labeller = Callable[[Dataset], Tensor]  # returns a label for each train example, as semantic noise gives it


@dataclass(frozen=True, eq=False)
class Clean:
    """The examples to put noise on: where they stand in the dataset's train part, and what they are."""

    dataset: Dataset
    indices: Tensor
    examples: Examples

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return len(self.dataset.classes)


Drawn = tuple[Inputs, NoisyLabels]


def draw_noise(
    data: DataSettings, noise: NoiseSettings, clean: Clean, generator: torch.Generator, labeller: Labeller | None
) -> Drawn:
    """Return the inputs and the given labels that the settings ask for; the inputs change in open-set noise alone."""
    if noise.labels_file is not None:
        return clean.examples.inputs, _from_file(data, noise, clean)
    if noise.kind == "none" and not clean.dataset.curated:
        labels = NoisyLabels(clean.examples.labels, None, clean.classes, None)
        return clean.examples.inputs, labels
    return choose("noise", noise.kind, KINDS)(noise, clean, generator, labeller)


def check_noise(noise: NoiseSettings) -> None:
    """Raise a UserError for settings that belong to another kind of noise."""
    choose("noise", noise.kind, KINDS)
    if noise.kind == "none" and noise.rate:
        raise UserError(f"noise.rate is {noise.rate}, but no noise is chosen: write noise.kind: uniform, for example.")
    if noise.kind == "semantic" and noise.rate:
        raise UserError(
            f"noise.rate is {noise.rate}, but semantic noise is as strong as its labeller is weak: "
            "leave noise.rate out, and set noise.fraction."
        )
    if noise.kind != "none" and noise.labels_file is not None:
        raise UserError(
            f"Noise '{noise.kind}' and a labels file exclude each other: leave noise.kind or labels_file out."
        )
    if noise.labels_column is not None and noise.labels_file is None:
        raise UserError("noise.labels_column names a column of a file: set noise.labels_file, too.")
    if noise.kind == "open_set" and noise.source is None:
        raise UserError("Noise 'open_set' needs foreign images: set noise.source to a dataset, file or folder.")
    if noise.kind != "open_set" and (noise.source is not None or noise.source_path is not None):
        raise UserError(f"Noise '{noise.kind}' takes no source: leave noise.source out, or choose noise 'open_set'.")
    if noise.kind not in NOISES:  # the others are checked when their matrix is made
        make_transition("none", 2, 0.0, noise.class_map, noise.matrix_file)


def _from_file(data: DataSettings, noise: NoiseSettings, clean: Clean) -> NoisyLabels:
    dataset = clean.dataset
    return load_labels(
        noise.labels_file or "",
        dataset.rows[clean.indices],
        clean.classes,
        column=noise.labels_column,
        names=dataset.classes,
        count=len(dataset.train) if data.limit is None else None,  # what a limit left out is forgotten
        known=clean.examples.labels if dataset.curated else None,
    )


def _by_matrix(noise: NoiseSettings, clean: Clean, generator: torch.Generator, labeller: Labeller | None) -> Drawn:
    class_map: ClassMap | None = noise.class_map
    if noise.kind == "asymmetric" and class_map is None:
        class_map = clean.dataset.class_map
    transition = make_transition(noise.kind, clean.classes, noise.rate, class_map, noise.matrix_file)
    return clean.examples.inputs, corrupt(clean.examples.labels, transition, generator)


def _by_instance(noise: NoiseSettings, clean: Clean, generator: torch.Generator, labeller: Labeller | None) -> Drawn:
    inputs, labels = clean.examples.inputs, clean.examples.labels
    return inputs, corrupt_by_instance(inputs, labels, clean.classes, noise.rate, generator)


def _open_set(noise: NoiseSettings, clean: Clean, generator: torch.Generator, labeller: Labeller | None) -> Drawn:
    inputs, labels, source = clean.examples.inputs, clean.examples.labels, noise.source or ""
    if clean.dataset.name in source.split("+"):
        raise UserError(f"The data are {clean.dataset.name} themselves: choose another noise.source.")
    return replace_images(inputs, labels, clean.classes, noise.rate, source, noise.source_path, generator)


def _semantic(noise: NoiseSettings, clean: Clean, generator: torch.Generator, labeller: Labeller | None) -> Drawn:
    if labeller is None:
        raise UserError("Noise 'semantic' needs a labeller: prepare the task with karat.training.run.task_of.")
    given = labeller(clean.dataset)[clean.indices]
    return clean.examples.inputs, NoisyLabels(given, clean.examples.labels, clean.classes, None)


KINDS: Mapping[str, Callable[[NoiseSettings, Clean, torch.Generator, Labeller | None], Drawn]] = {
    **dict.fromkeys(NOISES, _by_matrix),
    "instance": _by_instance,
    "open_set": _open_set,
    "semantic": _semantic,
}
