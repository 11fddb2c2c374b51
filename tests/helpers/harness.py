"""A small network, learner, batch and task for the tests of the methods, all in float64."""

import copy

import torch
from torch import nn

from karat.algorithm.network import Network
from karat.methods.method import Task
from karat.methods.step import Batch, Learner, Progress

CLASSES = 4
COUNT = 24


class Unchanged:
    """No augmentation."""

    def weak(self, inputs, generator, mirrored=None):
        return inputs

    def strong(self, inputs, generator):
        return inputs

    def close_up(self, inputs, generator, mirrored=None):
        return inputs


class Jitter(Unchanged):
    def strong(self, inputs, generator):
        return inputs + 0.1 * torch.randn(inputs.shape, generator=generator, dtype=inputs.dtype)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)).double()


def learner(module, augmentation=None):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    return Learner(Network(module), optimizer, augmentation or Unchanged(), CLASSES)


def batch(count=10, progress=None):
    """Return the first rows of `task()`'s noisy examples, and all of its trusted ones."""
    everything = task()
    rows = torch.arange(count)
    return Batch(
        everything.noisy_inputs(rows),
        everything.given_labels[rows],
        everything.trusted_inputs(torch.arange(2 * CLASSES)),
        everything.trusted_labels,
        rows,
        progress or Progress(0, 1, 1),
    )


def task():
    """Return 24 noisy examples, 6 of every class, and 8 trusted ones, 2 of every class."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(COUNT, 6, generator=generator, dtype=torch.float64)
    trusted = torch.randn(2 * CLASSES, 6, generator=generator, dtype=torch.float64)
    labels = torch.arange(COUNT) % CLASSES
    return Task(
        given_labels=labels,
        trusted_inputs=lambda rows: trusted[rows],
        trusted_labels=torch.arange(2 * CLASSES) % CLASSES,
        noisy_inputs=lambda rows: inputs[rows],
        classes=CLASSES,
        modality="vectors",
        new_learner=lambda: learner(network()),
    )


def stepped(module, loss_of):
    """Return the state of a copy of the module after one bare torch step down `loss_of(copy)`."""
    bare = copy.deepcopy(module)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    loss_of(bare).backward()
    optimizer.step()
    return bare.state_dict()
