"""The parts of a run, made from its config: network, optimizer, and what the method may look at."""

from collections.abc import Callable
from functools import partial

from lightning_fabric import Fabric
from torch import Tensor, nn

from karat.algorithm.network import Network
from karat.data.examples import Examples
from karat.data.task import NoisyTask
from karat.methods.method import Task, Tell
from karat.methods.step import Learner
from karat.models import build_model
from karat.settings.config import Config
from karat.training.optimizers import make_optimizer

Build = Callable[[str, tuple[int, ...], int], nn.Module]  # name, shape and classes: as `build_model`


def new_module(config: Config, task: NoisyTask, fabric: Fabric, build: Build = build_model) -> nn.Module:
    """Build the network with new random weights, on the device."""
    shape = tuple(task.noisy.inputs.shape[1:])
    module = build(config.model, shape, len(task.dataset.classes))
    return fabric.to_device(module.to(memory_format=task.dataset.modality.memory_format))


def new_learner(config: Config, task: NoisyTask, fabric: Fabric, build: Build = build_model) -> Learner:
    """Build a network with its optimizer and augmentation."""
    module, dataset = new_module(config, task, fabric, build), task.dataset
    return Learner(
        Network(module),
        make_optimizer(module.parameters(), config.optimizer),
        dataset.modality.augment(tuple(task.noisy.inputs.shape[1:]), dataset.flip, config.augmentation),
        len(dataset.classes),
        fabric.backward,
    )


def method_task(
    config: Config,
    task: NoisyTask,
    fabric: Fabric,
    averaged: Callable[[], nn.Module],
    tell: Tell,
    build: Build = build_model,
) -> Task:
    """Return what the method may look at: never the true labels."""

    def reader(examples: Examples) -> Callable[[Tensor], Tensor]:
        return lambda rows: examples.batch(rows).inputs.to(fabric.device)

    return Task(
        task.noisy.labels,
        reader(task.noisy),
        task.trusted.labels,
        reader(task.trusted),
        len(task.dataset.classes),
        task.dataset.modality.name,
        partial(new_learner, config, task, fabric, build),
        averaged,
        config.augmentation.mirrors(task.dataset.flip),
        tell,
    )
