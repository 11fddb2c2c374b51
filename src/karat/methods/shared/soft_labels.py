"""Soft labels: how they are sharpened, and the losses of networks that learn them."""

import math

import torch
from torch import Tensor

from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import cross_entropy


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
