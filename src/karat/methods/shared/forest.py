"""Boosted trees as tensors, and a network that they help: what `karat` deploys for tables.

scikit-learn grows the trees (`methods/karat/trees.py`); as tensors they are saved with the weights, without pickle.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from karat.noise_matrix import without_noise


class Forest(NamedTuple):
    """Trees [model, stage, class, node] that predict the given label; node 0 is the root, a leaf is its own child."""

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    baseline: Tensor
    """logits [model, class] before the first tree"""
    votes: Tensor
    """share of each model"""

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the given label's probabilities, in the mean over the models."""
        stages, classes = self.value.shape[1:3]
        rows = inputs.double().T
        found = torch.zeros(rows.shape[1], classes, dtype=rows.dtype, device=rows.device)
        for *nodes, baseline, votes in zip(*self, strict=True):
            feature, threshold, left, right, value = (part.flatten(0, 1) for part in nodes)
            place = torch.zeros(len(value), rows.shape[1], dtype=torch.long, device=rows.device)
            for _ in range(value.shape[1]):  # no path is longer, also in a damaged file whose nodes lead in a circle
                before = place
                is_left = rows.gather(0, feature.gather(1, place)) <= threshold.gather(1, place)
                place = torch.where(is_left, left.gather(1, place), right.gather(1, place))
                if torch.equal(place, before):
                    break
            logits = value.gather(1, place).unflatten(0, (stages, classes)).sum(dim=0).T + baseline
            found += votes * logits.softmax(dim=1)
        return found.float()


class WithTrees(nn.Module):
    """Return `(1 − share)·log softmax(network) + share·log p`, with p what trees say once T is taken off.

    The trees predict the given label; `transition` is T[true, given], `shares` are those of the true classes.
    """

    def __init__(self, network: nn.Module, forest: Forest, transition: Tensor, shares: Tensor, share: Tensor) -> None:
        super().__init__()
        self.network = network
        for name, part in zip(PARTS, (*forest, transition, shares, share), strict=True):
            self.register_buffer(name, part)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits."""
        *forest, transition, shares, share = (self.get_buffer(name) for name in PARTS)
        by_trees = without_noise(Forest(*forest).predict(inputs.flatten(1)), transition, shares).log()
        return torch.lerp(self.network(inputs).log_softmax(dim=1), by_trees, share)


PARTS = (*Forest._fields, "transition", "shares", "share")


def with_trees_of(weights: Mapping[str, Tensor], network: nn.Module, features: int = 2**31) -> nn.Module:
    """Return the network with room for the trees that these weights hold; the network alone where they hold none.

    A ValueError says that they are no trees over so many features.
    """
    if any(part not in weights for part in PARTS):
        return network
    nodes = weights["value"].shape[-1]
    for name, end in (("feature", features), ("left", nodes), ("right", nodes)):
        if bool(((weights[name] < 0) | (weights[name] >= end)).any()):
            raise ValueError(f"{name} of a tree is not below {end}")
    *forest, transition, shares, share = (torch.empty_like(weights[part]) for part in PARTS)
    return WithTrees(network, Forest(*forest), transition, shares, share)
