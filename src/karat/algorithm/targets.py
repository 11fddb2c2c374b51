"""Targets and the cross-entropy that is linear in them: eq. 5 and 7."""

import torch
import torch.nn.functional as F
from torch import Tensor


def one_hot(labels: Tensor, classes: int, like: Tensor) -> Tensor:
    """Return class indices as target distributions in the type and on the device of `like`."""
    return F.one_hot(labels, classes).to(like)


def cross_entropy(targets: Tensor, log_probabilities: Tensor) -> Tensor:
    """Return `L(target, Φ(x)) = −Σ_c target_c·log Φ(x)_c` for each example.

    >>> cross_entropy(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.5, 0.5]]).log())
    tensor([0.6931])
    """
    return -(targets * log_probabilities).sum(dim=1)


def blended_labels(given: Tensor, pseudo: Tensor, label_trust: float) -> Tensor:
    """Return `P(λ) = λ·y + (1−λ)·g` (eq. 5)."""
    return label_trust * given + (1 - label_trust) * pseudo


def chosen_labels(given: Tensor, pseudo: Tensor, label_trust: Tensor) -> Tensor:
    """Return y*: the given label where λ* > 0, the pseudo label elsewhere (eq. 7).

    >>> given, pseudo = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[0.3, 0.7]] * 2)
    >>> chosen_labels(given, pseudo, torch.tensor([1.0, 0.0]))
    tensor([[1.0000, 0.0000],
            [0.3000, 0.7000]])
    """
    return torch.where(label_trust[:, None] > 0, given, pseudo)
