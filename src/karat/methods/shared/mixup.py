"""What the methods that mix examples share: mixup factors, sharpening, a prior on the mean prediction, warm-up."""

import math

import numpy as np
import torch
from torch import Tensor

from karat.algorithm.joint_batch import mix
from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy
from karat.methods.step import Progress


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


def sharpened(probabilities: Tensor, temperature: float) -> Tensor:
    """Return `p^(1/τ) / Σ_j p_j^(1/τ)`.

    >>> sharpened(torch.tensor([[0.75, 0.25]]), 0.5)
    tensor([[0.9000, 0.1000]])
    """
    powers = probabilities.pow(1 / temperature)
    if not powers.sum(dim=1).all():  # at so low a temperature all powers of a row may be too small for its numbers
        powers = (probabilities / probabilities.amax(dim=1, keepdim=True)).pow(1 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)


def labelled_and_guessed_losses(logits: Tensor, targets: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of the labelled examples and the mean squared error of the others.

    The squared error is that of the softmax, averaged over examples and classes; an empty part has loss 0.
    """
    entropy = cross_entropy(targets, log_probability(logits))
    error = (logits.softmax(dim=1) - targets).square().mean(dim=1)
    count = labelled.sum()
    return (
        entropy[labelled].sum() / count.clamp(min=1),
        error[~labelled].sum() / (len(labelled) - count).clamp(min=1),
    )


def uniform_prior_penalty(logits: Tensor) -> Tensor:
    """Return `KL(uniform ‖ mean prediction)` over the batch: 0 where all classes are predicted equally often.

    >>> uniform_prior_penalty(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).abs() < 1e-6
    tensor(True)
    """
    examples, classes = logits.shape
    log_mean = torch.logsumexp(log_probability(logits), dim=0) - math.log(examples)
    return -math.log(classes) - log_mean.mean()


def warming_up(progress: Progress, share: float) -> bool:
    """Return whether the epoch of this step began before `share` of the steps: methods change between epochs only."""
    return progress.epoch * progress.steps_per_epoch < share * progress.total_steps


def ramp(progress: Progress, start: float, length: float) -> float:
    """Return a weight that rises linearly from 0 at the share `start` of the steps to 1 after a further `length`.

    >>> ramp(Progress(step=5, total_steps=8, steps_per_epoch=4), start=0.5, length=0.25)
    0.5
    """
    done = progress.share - start
    return min(max(done / length, 0.0), 1.0) if length > 0 else float(done >= 0)
