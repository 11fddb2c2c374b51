"""A pretrained network learns the verdict on the labels, after its head was fitted to it.

The whole network descends the cross-entropy to the posteriors of the noisy images and to the labels of the trusted
ones, from the fitted head on, at a rate that is fit for pretrained weights. BatchNorm keeps its statistics: the head
was fitted to what they make. The verdict itself stays as it is.
"""

import logging
import math
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from karat.data.blocks import Blocks
from karat.data.images import Inputs, Rows, read_ahead, row_blocks
from karat.data.samplers import ShuffledStream
from karat.data.task import NoisyTask
from karat.models.pretrained import PretrainedClassifier
from karat.progress_bar import ProgressBar
from karat.settings.config import Config
from karat.training.build import new_network
from karat.training.optimizers import make_optimizer, set_rate
from karat.training.schedules import cosine

logger = logging.getLogger("karat")

BATCH = 32  # images
LONGEST_GRADIENT = 1.0


class Joined:
    """Two inputs, one behind the other, as one."""

    def __init__(self, first: Inputs, second: Inputs) -> None:
        self._parts = first, second

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the tensor that all rows would give."""
        return torch.Size((len(self), *self._parts[0].shape[1:]))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, rows: Rows) -> Tensor:
        """Return the inputs at these rows.

        >>> Joined(torch.tensor([5, 6]), torch.tensor([7]))[[2, 0]].tolist()
        [7, 5]
        """
        wanted = torch.arange(len(self))[rows]
        first, second = self._parts
        behind = wanted >= len(first)
        found = first[wanted[~behind]]
        if not behind.any():
            return found
        joined = torch.empty(len(wanted), *found.shape[1:], dtype=found.dtype)
        joined[~behind], joined[behind] = found, second[wanted[behind] - len(first)]
        return joined


def fine_tuned(
    network: PretrainedClassifier, task: NoisyTask, posterior: Tensor, config: Config, device: torch.device
) -> PretrainedClassifier:
    """Return a copy of the network that has learned the posteriors of the images; as it was where that diverges."""
    images = task.seen
    inputs = Joined(images.noisy.inputs, images.trusted.inputs)
    targets = torch.cat([posterior, one_hot(images.trusted.labels, posterior.shape[1]).to(posterior)])
    size = min(BATCH, len(inputs))
    steps = config.training.fine_tune * math.ceil(len(inputs) / size)
    generator = torch.Generator().manual_seed(config.seed)
    stream = ShuffledStream(torch.arange(len(inputs)), generator, _blocks(images))
    batches = [stream.next(size) for _ in range(steps)]
    augmentation = images.dataset.modality.augment(tuple(inputs.shape[1:]), images.dataset.flip, config.augmentation)
    learned = deepcopy(network).to(device).eval().requires_grad_(True)
    passes = new_network(learned, config.training, device)
    optimizer = make_optimizer(learned, config.optimizer)
    assert config.optimizer.rate is not None  # settled by the plan
    rate = cosine(config.optimizer.rate, steps)
    with ProgressBar("fine-tuning", steps) as bar:
        for step, (rows, batch) in enumerate(zip(batches, read_ahead(inputs, batches), strict=True)):
            set_rate(optimizer, rate(step))
            logits = passes(augmentation.weak(batch, generator).to(device))
            loss = -(targets[rows].to(device) * logits.log_softmax(dim=1)).sum(dim=1).mean()
            if not loss.isfinite():
                logger.warning(
                    "Fine-tuning diverged at step %d: the network stays as it was, lower --optimizer.rate.", step + 1
                )
                return network
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(learned.parameters(), LONGEST_GRADIENT)
            optimizer.step()
            bar.advance(loss=loss.item())
    return learned.requires_grad_(False)


def _blocks(task: NoisyTask) -> Blocks | None:
    """Return the blocks of noisy and then trusted rows; the latter, which stay in memory, are spread over all."""
    blocks, trusted = row_blocks(task.noisy.inputs), torch.arange(len(task.trusted))
    if blocks is None:
        return None
    spread = blocks.numbers[trusted * len(task.noisy) // max(1, len(trusted))]
    return blocks._replace(numbers=torch.cat([blocks.numbers, spread]))
