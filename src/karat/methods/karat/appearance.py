"""Features of the inputs that no label had a part in: what an example looks like before the first step.

Images: responses of small filters, pooled over a coarse grid (Coates, Lee and Ng, AISTATS 2011). The filters are
patches of the images themselves, whitened; nothing is trained. Vectors: their columns, standardised, or embeddings in
their own scale (`own_scale.py`). Of either, the strongest principal directions. Nothing in them can have learned a
wrong label by heart.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.errors import choose
from karat.methods.karat.constants import CONSTANTS, AppearanceConstants

TINY = 1e-8

Describe = Callable[[Tensor], Tensor]
Read = Callable[[Tensor], Tensor]


class Appearance(NamedTuple):
    """How inputs are described."""

    describe: Describe
    mean: Tensor
    directions: Tensor
    chunk: int

    def features(self, read: Read, rows: Tensor, told: Callable[[float], None] = lambda share: None) -> Tensor:
        """Return the features of the inputs that `read` returns by their rows; `told` which share of them is done."""
        found = torch.empty(len(rows), self.directions.shape[1])
        for places in torch.arange(len(rows)).split(self.chunk) if len(rows) else ():
            found[places] = (self.describe(read(rows[places]).float()).cpu() - self.mean) @ self.directions
            told((int(places[-1]) + 1) / len(rows))
        return found


def learn_appearance(
    read: Read,
    count: int,
    modality: str,
    generator: torch.Generator,
    mirrored: bool = False,
    constants: AppearanceConstants = CONSTANTS.appearance,
) -> Appearance:
    """Learn from `count` inputs of a modality, which `read` returns by their rows, how they differ.

    With `mirrored` an image and its mirror image look the same.
    """
    prepare, learn = choose("modality", modality, DESCRIPTIONS)
    rows = torch.randperm(count, generator=generator)[: constants.sample].sort().values
    sample = _in_chunks(lambda part: prepare(read(rows[part]).float(), constants), len(rows), constants.chunk)
    describe = learn(sample, generator, mirrored, constants)
    described = _in_chunks(lambda part: describe(sample[part]).cpu(), len(rows), constants.chunk)
    mean = described.mean(dim=0)
    directions = _principal_directions(described - mean, most_directions(modality, constants), generator)
    return Appearance(describe, mean, directions, constants.chunk)


def most_directions(modality: str, constants: AppearanceConstants = CONSTANTS.appearance) -> int:
    """Return how many directions of the features are kept at most; rare words are many and weak ones."""
    return constants.directions_of_texts if modality == "texts" else constants.directions


def _in_chunks(function: Callable[[Tensor], Tensor], count: int, chunk: int) -> Tensor:
    """Return what a function says of the rows from 0 to `count`, asked about a few at a time.

    All goes into one tensor that is made at the start. Small results that stay, each made after a large one was freed,
    take the beginnings of the holes that the large ones left, and the next large one needs new memory: with one thread
    a run grew by 16 MB for 32 images (glibc 2.36).

    >>> _in_chunks(lambda rows: rows[:, None] * 2.0, count=3, chunk=2)
    tensor([[0.],
            [2.],
            [4.]])
    """
    found = torch.empty(0)
    for rows in torch.arange(count).split(chunk):
        part = function(rows)
        if not len(found):
            found = part.new_empty(count, *part.shape[1:])
        found[rows] = part
    return found


class CommonLength(NamedTuple):
    """What features are moved and multiplied by."""

    mean: Tensor
    factor: Tensor

    def of(self, features: Tensor, out: Tensor | None = None) -> Tensor:
        """Move and multiply features, into `out` where it is given."""
        return torch.sub(features, self.mean, out=out).mul_(self.factor)


def one_length(features: Tensor, length: float = CONSTANTS.appearance.length) -> CommonLength:
    """Return what gives features a mean of 0 and one length, in the mean over the examples.

    >>> features = torch.tensor([[3.0], [5.0]])
    >>> one_length(features).of(features)
    tensor([[-8.],
            [ 8.]])
    """
    mean = features.mean(dim=0)
    return CommonLength(mean, length / (features - mean).square_().sum(dim=1).mean().sqrt().clamp(min=TINY))


def _principal_directions(centred: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the directions in which the examples differ most, as columns.

    >>> line = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    >>> _principal_directions(line, 2, torch.Generator())  # no more columns than wanted: all of them
    tensor([[1., 0.],
            [0., 1.]])
    """
    if centred.shape[1] <= count:
        return torch.eye(centred.shape[1])
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    with torch.random.fork_rng(devices=[]):  # the decomposition draws from torch's own generator: not ours to move
        torch.default_generator.manual_seed(seed)
        return torch.svd_lowrank(centred, q=min(count, len(centred)), niter=2)[2]


def _standardised(
    sample: Tensor, generator: torch.Generator, mirrored: bool, constants: AppearanceConstants
) -> Describe:
    deviation, mean = torch.std_mean(sample.flatten(1), dim=0, correction=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)
    return lambda inputs: (inputs.flatten(1) - mean) / deviation


def _centred(sample: Tensor, generator: torch.Generator, mirrored: bool, constants: AppearanceConstants) -> Describe:
    """Leave inputs as they are: what an encoder made has its scale, and weak directions are noise."""
    return lambda inputs: inputs.flatten(1)


def _patch_responses(
    sample: Tensor, generator: torch.Generator, mirrored: bool, constants: AppearanceConstants
) -> Describe:
    height, width = sample.shape[2:]
    side = min(6 if min(height, width) > 20 else 4, height, width)
    flat = constants.contrast * sample.var().item() + TINY

    def drawn(highest: int, count: int) -> Tensor:
        return torch.randint(highest, (count,), generator=generator).to(sample.device)

    count = (height - side + 1) * (width - side + 1)  # of an image's patches
    some, places = sample[drawn(len(sample), 2_000)], drawn(count, 20_000).view(10, -1)  # ten patches of each
    found = torch.cat(
        [
            F.unfold(part, side).transpose(1, 2)[torch.arange(len(part), device=at.device), at]
            for part, at in zip(some.split(constants.chunk), places.split(constants.chunk, dim=1), strict=True)
        ],
        dim=1,
    ).flatten(0, 1)
    variance, mean = torch.var_mean(found, dim=1, keepdim=True, correction=0)
    found = (found - mean) / (variance + flat).sqrt()
    mean = found.mean(dim=0)
    variances, axes = torch.linalg.eigh((found - mean).T @ (found - mean) / len(found))
    whitening = axes * (variances.clamp(min=0) + constants.flattening * variances.mean() + TINY).rsqrt() @ axes.T
    white = (found - mean) @ whitening
    lengths = white.norm(dim=1)
    filters = F.normalize(white[lengths >= lengths.median() / 2][: constants.filters], dim=1) @ whitening
    offset = filters @ mean
    # A patch without its mean, times a filter, is the patch times the filter without its own: a convolution of images.
    filters = (filters - filters.mean(dim=1, keepdim=True)).view(-1, sample.shape[1], side, side)
    filters = filters.contiguous(memory_format=torch.channels_last)
    grid = torch.eye(count, device=sample.device).view(-1, 1, height - side + 1, width - side + 1)
    # This product is faster than the pooling.
    pooling = F.adaptive_avg_pool2d(grid, constants.grid).flatten(1).T.contiguous()

    def describe(images: Tensor) -> Tensor:
        images = _shrunk(images, constants).contiguous(memory_format=torch.channels_last)
        moments = torch.cat([images, images.square()]).mean(dim=1, keepdim=True)
        mean, square = F.avg_pool2d(moments, side, stride=1).chunk(2)
        contrast = ((square - mean.square()).clamp_(min=0) + flat).rsqrt_()
        response = F.conv2d(images, filters).mul_(contrast).permute(0, 2, 3, 1).flatten(1, 2).sub_(offset)
        beyond = F.softshrink(response, constants.threshold)
        difference, total = pooling @ beyond, pooling @ beyond.abs_()
        return torch.cat([total + difference, total - difference], dim=2).flatten(1).div_(2)

    return (lambda images: (describe(images) + describe(images.flip(3))) / 2) if mirrored else describe


def _shrunk(images: Tensor, constants: AppearanceConstants) -> Tensor:
    """Return large images smaller.

    >>> _shrunk(torch.zeros(5, 3, 224, 160), CONSTANTS.appearance).shape
    torch.Size([5, 3, 32, 23])
    """
    height, width = images.shape[2:]
    if max(height, width) <= constants.largest_side:
        return images
    ratio = constants.largest_side / max(height, width)
    return F.adaptive_avg_pool2d(images, (max(1, round(height * ratio)), max(1, round(width * ratio))))


class Description(NamedTuple):
    """How inputs of a modality are made ready, and how a sample of them tells how to describe all."""

    prepare: Callable[[Tensor, AppearanceConstants], Tensor]
    learn: Callable[[Tensor, torch.Generator, bool, AppearanceConstants], Describe]


DESCRIPTIONS = {
    "images": Description(_shrunk, _patch_responses),
    "vectors": Description(lambda vectors, constants: vectors, _standardised),
    "texts": Description(lambda vectors, constants: vectors, _centred),
    "embeddings": Description(lambda vectors, constants: vectors, _centred),
    "features": Description(lambda vectors, constants: vectors, _standardised),
}
