"""Random data of the real size, for dry runs: the data themselves may be absent."""

from dataclasses import replace
from typing import NamedTuple

import torch

from karat.data.examples import Dataset, Examples
from karat.data.noise.labels import NoisyLabels
from karat.data.task import NoisyTask
from karat.settings.config import Config, NoiseSettings
from karat.training.tasks import task_of


class Size(NamedTuple):
    """The shape of an example, how many classes, and how many train examples there are."""

    shape: tuple[int, ...]
    classes: int
    examples: int


# Those that do not come with a dependency: the data may be absent.
SIZES = {
    "cifar10": Size((3, 32, 32), 10, 50_000),
    "cifar100": Size((3, 32, 32), 100, 50_000),
    "fashion_mnist": Size((1, 28, 28), 10, 60_000),
    "webvision_mini": Size((3, 224, 224), 50, 65_944),
    "webvision": Size((3, 224, 224), 1000, 2_439_574),
    "imagenet": Size((3, 224, 224), 1000, 1_281_167),
    "clothing1m": Size((3, 224, 224), 14, 1_000_000),
    "food101n": Size((3, 224, 224), 101, 310_009),
}


def size_of(config: Config) -> Size:
    """Return the real size of a config's data: from the table where they may be absent, else from the data."""
    size = SIZES.get(config.data.name)
    if size is None:
        task = task_of(replace(config, noise=NoiseSettings()))  # semantic noise would train its labeller
        return Size(tuple(task.noisy.inputs.shape[1:]), len(task.dataset.classes), len(task.dataset.train))
    side = config.data.image_size
    if side is not None and size.shape[1] > 64:
        size = size._replace(shape=(3, side, side))
    return size._replace(examples=min(size.examples, config.data.limit or size.examples))


def random_task(size: Size, batch: int) -> NoisyTask:
    """Return a task with random inputs and labels: enough examples for a few batches, of every class one trusted."""
    generator = torch.Generator().manual_seed(0)

    def examples(count: int) -> Examples:
        labels = torch.arange(count) % size.classes
        # One image under many numbers: a thousand classes of large images need not be in memory.
        inputs = torch.randn(min(count, 8), *size.shape, generator=generator).clamp(-1, 1)
        return Examples(inputs[torch.arange(count) % len(inputs)] if count <= 64 else _Repeated(inputs, count), labels)

    noisy, trusted = examples(max(4 * batch, 16)), examples(size.classes)
    classes = tuple(str(label) for label in range(size.classes))
    dataset = Dataset("random", noisy, noisy, classes, True, rows=torch.arange(len(noisy)))
    return NoisyTask(dataset, trusted, noisy, dataset.rows, NoisyLabels(noisy.labels, None, size.classes, None))


class _Repeated:
    """A few inputs as if they were many."""

    def __init__(self, inputs: torch.Tensor, count: int) -> None:
        self._inputs, self.shape = inputs, torch.Size([count, *inputs.shape[1:]])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: torch.Tensor) -> torch.Tensor:
        return self._inputs[torch.as_tensor(rows) % len(self._inputs)]
