"""The parts of a run, made from its config: network, optimizer, and what the method may look at."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from karat.algorithm.network import Network
from karat.data.examples import Examples
from karat.data.modality import IMAGES
from karat.data.task import NoisyTask
from karat.methods.method import Task, Tell
from karat.methods.step import Learner
from karat.models import LINEAR, build_model, look_at_inputs
from karat.models.views import with_views
from karat.settings.config import Config
from karat.training.optimizers import make_optimizer

SHOWN = 1_000  # inputs that a network is read off: a million patches of 32 pixels
Build = Callable[[str, tuple[int, ...], int], nn.Module]  # name, shape and classes: as `build_model`


def new_module(config: Config, task: NoisyTask, device: torch.device, build: Build = build_model) -> nn.Module:
    """Build the network with new random weights, on the device; layers that are read off inputs see noisy ones."""
    shape, classes = tuple(task.noisy.inputs.shape[1:]), len(task.dataset.classes)
    if task.dataset.featured:  # the network that made the features stays as it is
        return build_model(LINEAR, shape, classes).to(device)
    if config.weights is None:
        module = build(config.model, shape, classes)
    else:
        module = build_model(config.model, shape, classes, weights=config.weights)
    look_at_inputs(module, lambda: task.noisy.inputs[evenly_spaced(len(task.noisy), SHOWN)])
    module = with_views(module, views_of(config, task))
    return module.to(memory_format=task.dataset.modality.memory_format).to(device)


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


def new_learner(config: Config, task: NoisyTask, device: torch.device, build: Build = build_model) -> Learner:
    """Build a network with its optimizer and augmentation."""
    module, dataset = new_module(config, task, device, build), task.dataset
    return Learner(
        Network(module),
        make_optimizer(module, config.optimizer),
        dataset.modality.augment(tuple(task.noisy.inputs.shape[1:]), dataset.flip, config.augmentation),
        len(dataset.classes),
        config.training.label_smoothing,
    )


def method_task(
    config: Config,
    task: NoisyTask,
    device: torch.device,
    averaged: Callable[[], nn.Module],
    tell: Tell,
    build: Build = build_model,
) -> Task:
    """Return what the method may look at: never the true labels."""

    def reader(examples: Examples) -> Callable[[Tensor], Tensor]:
        return lambda rows: examples.batch(rows).inputs.to(device)

    return Task(
        task.noisy.labels,
        reader(task.noisy),
        task.trusted.labels,
        reader(task.trusted),
        len(task.dataset.classes),
        task.dataset.modality.name,
        partial(new_learner, config, task, device, build),
        averaged,
        config.augmentation.mirrors(task.dataset.flip),
        tell,
    )
