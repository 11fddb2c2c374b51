"""What a run needs in memory, reckoned before its first step, and what the machine has left."""

import torch
from torch import Tensor, nn

from karat.data.images import APART_BYTES, CACHE_BYTES, ImageFiles
from karat.files.memory_need import free_memory
from karat.methods.karat.appearance import most_directions
from karat.methods.karat.constants import CONSTANTS
from karat.models import PRETRAINED, build_model
from karat.training.speed import COSTS
from karat.training.trainer import Trainer

FLOAT = 4
COPIES = 7  # of the parameters: their own, gradient, momentum, three averages, and one while a model is finished
PASSES = 2  # what a layer returned is kept for the way back, where gradients of its size are made
OF_PROGRAM = 40 * 2**20  # libraries that are loaded on the way, tables, the report, what the allocator keeps
LOGIT_COPIES = (
    14  # of a judge's logits in method karat: three judges under three hypotheses, and what they say together
)
FEATURE_COPIES = 10  # of the features that heads learn from: read, smoothed, split, centred
GIGABYTE = 2**30


def memory_warning(trainer: Trainer) -> list[str]:
    """Say in a sentence that a run does not fit into what is free; nothing where it does, or where nobody knows."""
    free, needed = free_memory(), needed_memory(trainer)
    if free is None or trainer.device.type != "cpu" or needed <= free:
        return []
    return [
        f"This run needs about {needed / GIGABYTE:.1f} GB of memory and {free / GIGABYTE:.1f} GB are free, so the "
        "system may end it: use --data.limit N, a smaller --training.batch_size or a smaller --model."
    ]


def needed_memory(trainer: Trainer) -> int:
    """Return roughly how many bytes a run takes beside what is loaded already: docs/reliability.md compares."""
    config, task = trainer.config, trainer.task
    shape, rows = tuple(task.noisy.inputs.shape[1:]), len(task.noisy)
    outputs = 0 if task.origin is not None else numbers_of_layers(config.model, shape, trainer.classes)
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    images_a_step = trainer.batch_size * COSTS.get(config.method, 1.0)
    needed = OF_PROGRAM + FLOAT * (PASSES * int(images_a_step * outputs) + COPIES * parameters)
    if config.method == "karat":
        judge = CONSTANTS.verdict
        most = most_directions(task.dataset.modality.name)
        width = most if len(shape) > 1 else min(most, *shape)
        needed += FLOAT * (
            LOGIT_COPIES * trainer.classes * rows + FEATURE_COPIES * width * min(rows, judge.most_learned)
        )
    if isinstance(task.noisy.inputs, ImageFiles):  # decoded images are kept until the cache is full
        pixels = torch.Size(shape).numel()
        needed += min(CACHE_BYTES, rows * pixels) + min(APART_BYTES, len(task.trusted) * pixels)
    return needed


def numbers_of_layers(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return how many numbers the layers of a network return for one example; nothing is computed.

    >>> numbers_of_layers("mlp", (13,), classes=3)  # linear, BatchNorm, ReLU and dropout of 256, twice, and the head
    2051
    """
    found = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        nonlocal found
        if isinstance(output, Tensor) and not list(layer.children()):
            found += output.numel()

    with torch.random.fork_rng(devices=[]), torch.device("meta"), torch.no_grad():
        network = build_model(model.removesuffix(PRETRAINED), shape, classes).eval()
        for layer in network.modules():
            layer.register_forward_hook(count)
        network(torch.zeros(1, *shape))
    return found
