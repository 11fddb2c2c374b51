"""Lines 4 and 5 of Algorithm 1: split by weight, join with the trusted batch, mix up (eq. 9)."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class JointBatch(NamedTuple):
    """Mixed examples; the first part starts from trusted ones, each further part from one noisy view."""

    inputs: Tensor
    targets: Tensor
    part_sizes: tuple[int, ...]


def split_targets(given: Tensor, pseudo: Tensor, weights: Tensor, threshold: float | None) -> Tensor:
    """Give possibly mislabelled examples (ω* < T) their pseudo label and let the others keep theirs (line 4).

    >>> given, pseudo = torch.eye(2), torch.eye(2).flip(0)
    >>> split_targets(given, pseudo, torch.tensor([0.7, 0.3]), threshold=0.5)
    tensor([[1., 0.],
            [1., 0.]])
    """
    if threshold is None:
        return pseudo
    return torch.where((weights < threshold)[:, None], pseudo, given)


def joint_batch(
    trusted_inputs: Tensor,
    trusted_targets: Tensor,
    views: Sequence[Tensor],
    noisy_targets: Tensor,
    factors: Literal["beta", "approximate", "none"],
    generator: torch.Generator,
) -> JointBatch:
    """Mix each example of `trusted ∪ noisy views` with one of a random permutation (line 5, eq. 9).

    `x_β = β·x_a + (1−β)·x_b` and the same for the targets, one β for each example.
    """
    inputs = torch.cat([trusted_inputs, *views])
    targets = torch.cat([trusted_targets, *[noisy_targets] * len(views)])
    partner = torch.randperm(len(inputs), generator=generator, device=generator.device).to(inputs.device)
    factor = mixup_factors(len(inputs), factors, generator).to(inputs)
    return JointBatch(
        mix(inputs, inputs[partner], factor),
        mix(targets, targets[partner], factor),
        (len(trusted_inputs), *[len(view) for view in views]),
    )


def mix(a: Tensor, b: Tensor, factor: Tensor) -> Tensor:
    """Return `Mix_β(a, b) = β·a + (1−β)·b`, one β for each row.

    >>> mix(torch.tensor([[4.0]]), torch.tensor([[0.0]]), torch.tensor([0.25]))
    tensor([[1.]])
    """
    return torch.lerp(b, a, factor.view(-1, *[1] * (a.dim() - 1)))


def mixup_factors(count: int, kind: Literal["beta", "approximate", "none"], generator: torch.Generator) -> Tensor:
    """Draw mixup factors: exactly Beta(0.5, 0.5), the released code's `max(u²/2, 1 − u²/2)`, or all 1 for "none".

    Beta(0.5, 0.5) is the arcsine distribution: its inverse cumulative distribution function is sin²(πu/2).
    """
    if kind == "none":
        return torch.ones(count, device=generator.device, dtype=torch.float64)
    u = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
    if kind == "approximate":
        return 1 - u.square() / 2  # u²/2 <= 1/2, so the larger of it and its complement is the complement
    return torch.sin(torch.pi / 2 * u).square()
