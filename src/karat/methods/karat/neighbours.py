"""Features smoothed over nearest neighbours, so that what looks alike is judged alike.

With A the matrix that averages over an example's nearest neighbours, the smoothed features are

    s = (1 − a)·Σ_t aᵗ·Aᵗ·h,

what a random walk from the example sees that ends at each step with probability 1 − a: the example itself where a = 0,
all of its cluster where a is near 1. A linear head on s can tell clusters apart that one on h cannot.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.karat.constants import CONSTANTS, NeighbourConstants

TINY = 1e-12


class _Neighbours(NamedTuple):
    """The nearest of some examples to each of others, and what each counts."""

    places: Tensor
    weights: Tensor

    def average(self, features: Tensor) -> Tensor:
        """Return the weighted average of the neighbours' features."""
        return F.embedding_bag(self.places, features, per_sample_weights=self.weights, mode="sum")


class Walks(NamedTuple):
    """Examples over which walks go, and what they see from each of them by each amount."""

    start: Tensor
    seen: list[Tensor]
    constants: NeighbourConstants

    def smoothed(self, features: Tensor) -> list[Tensor]:
        """Return features of other examples, which look up their neighbours among these, smoothed by each amount."""
        near = _nearest(features, self.start, self.constants)
        pairs = zip(self.seen, self.constants.amounts, strict=True)
        return [torch.lerp(features, near.average(seen), amount) for seen, amount in pairs]


def smoothed(
    features: Tensor, generator: torch.Generator, constants: NeighbourConstants = CONSTANTS.neighbours
) -> tuple[list[Tensor], Walks]:
    """Return the features smoothed by each amount a, from 0 to below 1, and how to smooth others.

    The features are overwritten: the last version is in their place.
    """
    order = torch.randperm(len(features), generator=generator).to(features.device)
    inside, outside = order[: constants.most_inside], order[constants.most_inside :]
    walks = _walk(features[inside], constants)
    versions = [*(torch.empty_like(features) for _ in constants.amounts[1:]), features]
    for version, seen in zip(versions, walks.seen, strict=True):
        version[inside] = seen
    for some in outside.split(constants.chunk) if len(outside) else ():
        for version, found in zip(versions, walks.smoothed(features[some]), strict=True):
            version[some] = found
    return versions, walks


def _walk(start: Tensor, constants: NeighbourConstants) -> Walks:
    """Walk over these examples."""
    neighbours, seen = _nearest(start, None, constants), []
    for amount in constants.amounts:
        spread = start
        for _ in range(constants.rounds):
            spread = torch.lerp(start, neighbours.average(spread), amount)
        seen.append(spread)
    return Walks(start, seen, constants)


def _nearest(examples: Tensor, among: Tensor | None, constants: NeighbourConstants) -> _Neighbours:
    """Return each example's neighbours among others, or among the examples themselves.

    What a neighbour counts falls with its squared distance in units of the farthest one's: crowded and empty regions
    are treated alike.

    >>> _nearest(torch.tensor([[0.0], [1.0], [3.0]]), None, CONSTANTS.neighbours).places
    tensor([[1, 2],
            [0, 2],
            [1, 0]])
    """
    others = examples if among is None else among
    count = min(constants.count, len(others) - (among is None))
    squares = others.square().sum(dim=1)
    group = max(1, math.isqrt(len(others) // count)) if count else 1
    short = -len(others) % group
    others, squares = F.pad(others, (0, 0, 0, short)), F.pad(squares, (0, short), value=torch.inf)
    weights = examples.new_empty(len(examples), count)
    places = torch.empty_like(weights, dtype=torch.long)
    for first in range(0, len(examples), constants.chunk):
        part = slice(first, first + constants.chunk)
        distances = torch.addmm(squares, examples[part], others.T, alpha=-2)
        if among is None:
            distances[:, part].fill_diagonal_(torch.inf)
        nearest, places[part] = _least(distances, count, group)
        nearest = (nearest + examples[part].square().sum(dim=1, keepdim=True)).clamp(min=0)
        weights[part] = (-nearest / nearest[:, -1:].clamp(min=TINY)).softmax(dim=1)
    return _Neighbours(places, weights)


def _least(values: Tensor, count: int, group: int) -> tuple[Tensor, Tensor]:
    """Return each row's least values and their places, by the least of groups: ten times as fast as torch's topk.

    The groups that hold them are among those whose own least values are the least.

    >>> _least(torch.tensor([[5.0, 2.0, 3.0, 1.0]]), count=2, group=2)
    (tensor([[1., 2.]]), tensor([[3, 1]]))
    """
    groups = values.unflatten(1, (group, -1))
    promising = groups.amin(dim=1).topk(count, largest=False).indices
    places = (promising[:, None] + torch.arange(group, device=values.device)[:, None] * groups.shape[2]).flatten(1)
    least, order = values.gather(1, places).topk(count, largest=False)
    return least, places.gather(1, order)
