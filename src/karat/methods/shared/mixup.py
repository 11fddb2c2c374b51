"""Mixup: examples and their targets mixed with those of others."""

import numpy as np
import torch
from torch import Tensor

from karat.algorithm.joint_batch import mix


def beta_factors(count: int, concentration: float, generator: torch.Generator) -> Tensor:
    """Draw mixup factors from Beta(a, a)."""
    # torch's own Beta distribution takes no generator.
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).beta(concentration, concentration, count))


def mixed_with_others(
    inputs: Tensor, targets: Tensor, concentration: float, generator: torch.Generator, keep_first: bool = False
) -> tuple[Tensor, Tensor]:
    """Mix each example and its target with those of a random permutation, one factor for each.

    `keep_first` takes max(β, 1−β), so that a mixed example stays nearer to its first part (MixMatch).
    """
    factor = beta_factors(len(inputs), concentration, generator)
    if keep_first:
        factor = torch.maximum(factor, 1 - factor)
    partner = torch.randperm(len(inputs), generator=generator).to(inputs.device)
    return (
        mix(inputs, inputs[partner], factor.to(inputs)),
        mix(targets, targets[partner], factor.to(targets)),
    )
