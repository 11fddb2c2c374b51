"""Mixup: examples and their targets mixed with those of others."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from karat.algorithm.joint_batch import mix


def beta_factors(count: int, concentration: float, generator: torch.Generator) -> Tensor:
    """Draw mixup factors from Beta(a, a)."""
    # torch's own Beta distribution takes no generator.
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).beta(concentration, concentration, count))


class Mixing(NamedTuple):
    """Which example each one is mixed with, and how much of its own it keeps: the same for inputs and targets."""

    factor: Tensor
    partner: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        """Return the mixed values, a row for each example."""
        return mix(values, values[self.partner.to(values.device)], self.factor.to(values))


def draw_mixing(count: int, concentration: float, generator: torch.Generator, keep_first: bool = False) -> Mixing:
    """Draw a random permutation and factors from Beta(a, a).

    `keep_first` takes max(β, 1−β), so that a mixed example stays nearer to its first part (MixMatch).
    """
    factor = beta_factors(count, concentration, generator)
    if keep_first:
        factor = torch.maximum(factor, 1 - factor)
    return Mixing(factor, torch.randperm(count, generator=generator))


def mixed_with_others(
    inputs: Tensor, targets: Tensor, concentration: float, generator: torch.Generator, keep_first: bool = False
) -> tuple[Tensor, Tensor]:
    """Mix each example and its target with those of a random permutation, one factor for each (`draw_mixing`)."""
    mixing = draw_mixing(len(inputs), concentration, generator, keep_first)
    return mixing(inputs), mixing(targets)
