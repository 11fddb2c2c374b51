"""The noise as a matrix `transition[true, given]`, two ways to estimate it, and the loss that passes through it."""

import torch
from torch import Tensor

from karat.algorithm.pseudo_labels import log_probability


def anchor_transition(probabilities: Tensor, anchor_rank: float) -> Tensor:
    """Estimate the matrix from predicted given labels alone: row c is the prediction of an anchor of class c.

    The anchor of c is the example at place `anchor_rank · examples / classes` when they are ordered by p(c | x), the
    most confident first.

    >>> anchor_transition(torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.4, 0.6]]), anchor_rank=0.5)
    tensor([[0.7000, 0.3000],
            [0.4000, 0.6000]])
    """
    examples, classes = probabilities.shape
    place = min(int(anchor_rank * examples / classes), examples - 1)
    anchors = probabilities.argsort(dim=0, descending=True, stable=True)[place]
    return probabilities[anchors]


def trusted_transition(probabilities: Tensor, trusted_labels: Tensor) -> Tensor:
    """Estimate the matrix from the predicted given labels of trusted examples: row c is their mean over class c.

    A class without a trusted example keeps its labels: its row is that of the identity.

    >>> trusted_transition(torch.tensor([[0.8, 0.2], [0.6, 0.4]]), torch.tensor([0, 0]))
    tensor([[0.7000, 0.3000],
            [0.0000, 1.0000]])
    """
    identity = torch.eye(probabilities.shape[1]).to(probabilities)
    counts = trusted_labels.bincount(minlength=probabilities.shape[1])[:, None]
    sums = torch.zeros_like(identity).index_add_(0, trusted_labels, probabilities)
    return torch.where(counts > 0, sums / counts.clamp(min=1), identity)


def corrected_cross_entropy(logits: Tensor, given_labels: Tensor, transition: Tensor) -> Tensor:
    """Return `−log Σ_c softmax(z)_c · transition[c, given]` for each example (forward correction).

    >>> corrected_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[0.7, 0.3], [0.3, 0.7]]))
    tensor([0.6931])
    """
    probability = (log_probability(logits).exp() * transition.to(logits).T[given_labels]).sum(dim=1)
    # An estimated matrix may have zeros, and a sure network predicts them: the loss must stay finite.
    return -probability.clamp(min=torch.finfo(logits.dtype).tiny).log()
