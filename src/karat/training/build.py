"""The parts of a run, made from its config: network, optimizer, and what the method may look at."""

import re
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from karat.algorithm.compiled import Compiled
from karat.algorithm.network import Network
from karat.algorithm.ranks import Ranks
from karat.data.examples import Examples
from karat.data.images import Inputs
from karat.data.modality import IMAGES, VECTORS
from karat.data.task import NoisyTask
from karat.data.text_rows import TextRows
from karat.errors import UserError
from karat.files.memory_need import free_memory
from karat.methods.karat.constants import CONSTANTS
from karat.methods.method import Task, Tell
from karat.methods.step import Learner
from karat.models import LINEAR, build_model, look_at_inputs
from karat.models.views import with_views
from karat.settings.config import Config, TrainingSettings
from karat.training.optimizers import make_optimizer
from karat.training.precision import checked_precision

_OWN = re.compile("(mlp|fast|wrn|resnet|vgg|densenet)(-[0-9]+)+")
MOST_LAYERS = 100_000
OF_PARAMETERS = 4 * 4  # bytes of each: its own four, gradient, momentum and average
SHOWN = 1_000  # inputs that a network is read off: a million patches of 32 pixels
Build = Callable[[str, tuple[int, ...], int], nn.Module]  # name, shape and classes: as `build_model`


def new_module(config: Config, task: NoisyTask, device: torch.device, build: Build = build_model) -> nn.Module:
    """Build the network with new random weights, on the device; layers that are read off inputs see noisy ones."""
    shape, classes = tuple(task.noisy.inputs.shape[1:]), len(task.dataset.classes)
    if task.dataset.featured:  # the network that made the features stays as it is
        return build_model(LINEAR, shape, classes).to(device)
    if build is build_model:
        refuse_huge(config.model, shape, classes)
    if config.weights is None:
        module = build(config.model, shape, classes)
    else:
        module = build_model(config.model, shape, classes, weights=config.weights)
    look_at_inputs(module, lambda: task.noisy.inputs[evenly_spaced(len(task.noisy), SHOWN)])
    module = with_views(module, views_of(config, task))
    return module.to(memory_format=task.dataset.modality.memory_format).to(device)


def refuse_huge(name: str, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a network by its numbers, such as wrn-28-9999, where it alone would fill the memory."""
    sizes = [int(size) for size in re.findall("[0-9]+", name)] if _OWN.fullmatch(name) else []
    if not sizes:
        return
    if max(sizes) > MOST_LAYERS:
        raise UserError(f"The model is {name}: its depth and width may be {MOST_LAYERS:,} at most.")
    with torch.random.fork_rng(devices=[]), torch.device("meta"):  # nothing is computed
        numbers = sum(parameter.numel() for parameter in build_model(name, shape, classes).parameters())
    free = free_memory()
    if free is not None and OF_PARAMETERS * numbers > free:
        raise UserError(
            f"The network {name} has {numbers:,} parameters, which need {OF_PARAMETERS * numbers / 2**30:.1f} GB of "
            f"memory in training, and {free / 2**30:.1f} GB are free: choose a smaller --model."
        )


def views_of(config: Config, task: NoisyTask) -> str:
    """Return the views of an input whose mean prediction is taken; vectors have no other than themselves."""
    by_dataset = task.dataset.flip
    return config.augmentation.views_at_prediction(by_dataset) if task.dataset.modality is IMAGES else "plain"


def evenly_spaced(count: int, most: int) -> Tensor:
    """Return up to so many rows, from all parts of a set.

    >>> evenly_spaced(10, most=3)
    tensor([0, 3, 6])
    """
    return torch.arange(min(count, most)) * count // min(count, most)


def new_learner(
    config: Config, task: NoisyTask, device: torch.device, build: Build = build_model, ranks: Ranks | None = None
) -> Learner:
    """Build a network with its optimizer and augmentation; `ranks` are the processes that share its passes."""
    module, dataset = new_module(config, task, device, build), task.dataset
    return Learner(
        new_network(module, config.training, device, ranks),
        make_optimizer(module, config.optimizer),
        dataset.modality.augment(tuple(task.noisy.inputs.shape[1:]), dataset.flip, config.augmentation),
        len(dataset.classes),
        config.training.label_smoothing,
    )


def new_network(
    module: nn.Module, training: TrainingSettings, device: torch.device, ranks: Ranks | None = None
) -> Network:
    """Return the module with passes as the settings have them."""
    return Network(
        module,
        ranks=ranks,
        pieces=training.pieces,
        precision=checked_precision(training.precision, device),
        compiled=Compiled(module) if training.compile and can_be_compiled(module, training, ranks) else None,
        own_statistics=training.batch_norm == "own",
    )


def can_be_compiled(module: nn.Module, training: TrainingSettings, ranks: Ranks | None) -> bool:
    """Return whether no layer talks to other processes, as BatchNorm does for the statistics of all rows."""
    return ranks is None or training.batch_norm == "own" or not has_batch_norm(module)


def has_batch_norm(module: nn.Module) -> bool:
    """Return whether some layer looks at several examples.

    >>> has_batch_norm(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))), has_batch_norm(nn.GroupNorm(1, 2))
    (True, False)
    """
    return any(isinstance(layer, _BatchNorm) for layer in module.modules())


def method_task(
    config: Config,
    task: NoisyTask,
    device: torch.device,
    averaged: Callable[[], nn.Module],
    tell: Tell,
    build: Build = build_model,
    ranks: Ranks | None = None,
) -> Task:
    """Return what the method may look at: never the true labels."""

    def reader(examples: Examples) -> Callable[[Tensor], Tensor]:
        read = vectors_at(examples.inputs)
        return lambda rows: read(rows).to(device)

    noisy, trusted = task.noisy.inputs, task.trusted.inputs
    wide = isinstance(noisy, TextRows) and noisy.wide
    return Task(
        task.noisy.labels,
        reader(task.noisy),
        task.trusted.labels,
        reader(task.trusted),
        len(task.dataset.classes),
        task.dataset.modality.name,
        partial(new_learner, config, task, device, build, ranks),
        averaged,
        config.augmentation.mirrors(task.dataset.flip),
        tell,
        (noisy.counts, trusted.counts) if wide else None,
        _units(task),
    )


def _units(task: NoisyTask) -> tuple[Tensor, Tensor] | None:
    """Return the units of long vectors: those of short ones, which trees look at, are no encoder's."""
    schema, longest = task.dataset.schema, CONSTANTS.verdict.trees.longest_vector
    if schema is None or schema.modality is not VECTORS or schema.shape[0] <= longest:
        return None
    return schema.units


def vectors_at(inputs: Inputs) -> Callable[[Tensor], Tensor]:
    """Return what reads inputs as judges see them: of texts their directions, whatever the model sees."""
    return inputs.vectors if isinstance(inputs, TextRows) else inputs.__getitem__
