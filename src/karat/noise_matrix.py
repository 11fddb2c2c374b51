"""The mathematics of a noise matrix: `transition[true, given]` is the chance that a true class is labelled as another.

Matrices by formula, what a matrix and a label say of the true class, and three ways to estimate a matrix: by
expectation-maximisation from predictions of the true classes; from predictions of the given labels, of anchors or of
trusted examples.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.errors import UserError

ClassMap = Mapping[int, int]

Prior = Callable[[Tensor], Tensor | float]
"""Takes counts[true, given] of labels and returns those to add, as if they had been seen before."""


def uniform_transition(classes: int, rate: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """Redraw a share of the labels from ALL classes: rate · (classes − 1) / classes of them become wrong.

    >>> round(1 - uniform_transition(10, 0.8)[0, 0].item(), 4)
    0.72
    """
    check_rate(classes, rate)
    return (1 - rate) * torch.eye(classes, dtype=dtype) + rate / classes


def symmetric_transition(classes: int, rate: float) -> Tensor:
    """Redraw a share of the labels from the OTHER classes: exactly this share becomes wrong.

    >>> symmetric_transition(3, 0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    check_rate(classes, rate)
    identity = torch.eye(classes, dtype=torch.float64)
    return (1 - rate) * identity + rate / (classes - 1) * (1 - identity)


def asymmetric_transition(classes: int, rate: float, class_map: ClassMap | None = None) -> Tensor:
    """Flip each class of the map to its target with probability rate; by default c -> (c + 1) % classes.

    >>> asymmetric_transition(3, 0.25, {0: 2}).tolist()
    [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_rate(classes, rate)
    if class_map is None:
        class_map = {label: (label + 1) % classes for label in range(classes)}
    transition = torch.eye(classes, dtype=torch.float64)
    for source, target in class_map.items():
        if not (0 <= source < classes and 0 <= target < classes and source != target):
            raise UserError(
                f"The class map flips {source} to {target}, which are not two of the {classes} classes: "
                f"map a number from 0 to {classes - 1} to another one."
            )
        transition[source, source] = 1 - rate
        transition[source, target] = rate
    return transition


def check_rate(classes: int, rate: float) -> None:
    """Raise a UserError unless there are classes to confuse and the rate is a share."""
    if classes < 2:
        raise UserError(f"Label noise needs at least 2 classes to confuse, and there are {classes}: add classes.")
    if not 0 <= rate <= 1:  # also refuses NaN
        raise UserError(f"The noise rate is {rate}: give a share from 0 to 1, such as 0.8 for 80%.")


def check_transition(transition: Tensor, classes: int) -> None:
    """Raise a UserError unless this is a square matrix of probabilities whose rows sum to 1."""
    if transition.shape != (classes, classes):
        raise UserError(
            f"The transition matrix has shape {tuple(transition.shape)}: "
            f"{classes} classes need {classes} rows (true) of {classes} numbers (given)."
        )
    if not transition.isfinite().all():
        raise UserError("The transition matrix has entries that are NaN or infinite: give every entry a probability.")
    if (transition < 0).any():
        raise UserError(
            f"The transition matrix has the negative entry {transition.min().item():g}: give every entry a probability."
        )
    sums = transition.double().sum(dim=1)
    worst = int((sums - 1).abs().argmax())
    if abs(sums[worst].item() - 1) > 1e-6:
        raise UserError(
            f"Row {worst} of the transition matrix sums to {sums[worst].item():g}: "
            "divide each row by its sum, so that it sums to 1."
        )


def label_likelihood(probabilities: Tensor, given_labels: Tensor, transition: Tensor) -> Tensor:
    """Return `Σ_c p(c)·T[c, given]`: how likely each given label is, and never 0, so that it has a logarithm.

    Probabilities are [example, ..., class]; for [example, ..., matrix, class] there may be several matrices.

    >>> label_likelihood(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
    tensor([0.6000])
    """
    return _positive(_joint(probabilities, given_labels, transition).sum(dim=-1))


def true_posterior(probabilities: Tensor, given_labels: Tensor, transition: Tensor) -> Tensor:
    """Return `q(c) ∝ p(c)·T[c, given]`: how likely each class is to be the true one, by Bayes' rule.

    >>> true_posterior(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
    tensor([[0.7500, 0.2500]])
    """
    joint = _joint(probabilities, given_labels, transition)
    return joint / _positive(joint.sum(dim=-1, keepdim=True))


def without_noise(predicted: Tensor, transition: Tensor, shares: Tensor, rounds: int = 15) -> Tensor:
    """Return p with `p·T` near the predicted given labels, by expectation-maximisation from the classes' shares on.

    There may be several T [case, true, given], each with shares of its own [case, 1, class].

    >>> transition = torch.tensor([[0.8, 0.2], [0.2, 0.8]])
    >>> without_noise(torch.tensor([[0.74, 0.26]]), transition, torch.tensor([0.5, 0.5]), rounds=100).round(decimals=2)
    tensor([[0.9000, 0.1000]])
    """
    p = shares
    for _ in range(rounds):
        p = p * ((predicted / (p @ transition).clamp(min=1e-9)) @ transition.mT)  # sums to what `predicted` sums to
    return (p / p.sum(dim=-1, keepdim=True).clamp(min=1e-9)).clamp(min=1e-5)


def smoothing(count: float) -> Prior:
    """Return the prior that has seen so many labels of every pair."""
    return lambda counts: count


def fit_transition(probabilities: Tensor, given_labels: Tensor, start: Tensor, prior: Prior, rounds: int = 1) -> Tensor:
    """Take rounds of expectation-maximisation for T, with p held still: `T[c, y] ∝ prior + Σ_{i: given_i = y} q_i(c)`.

    A class that nothing belongs to has a row by its prior alone.

    >>> sure = torch.eye(2)[[0, 0, 0, 0, 1]]
    >>> fit_transition(sure, torch.tensor([0, 0, 0, 1, 1]), uniform_transition(2, 0.5), smoothing(0.0))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    transition = start
    for _ in range(rounds):
        posterior = true_posterior(probabilities, given_labels, transition)
        of_labels = posterior.new_zeros(transition.shape).index_add_(0, given_labels, posterior)
        counts = of_labels.T.to(transition.dtype)
        counts = counts + prior(counts)
        transition = counts / counts.sum(dim=1, keepdim=True)
    return transition


def diagonally_dominant(transition: Tensor) -> Tensor:
    """Return the matrix with no class labelled as another one more often than as itself.

    >>> diagonally_dominant(torch.tensor([[0.4, 0.6], [0.1, 0.9]]))
    tensor([[0.5000, 0.5000],
            [0.1000, 0.9000]])
    """
    capped = transition.minimum(transition.diagonal()[:, None])
    return capped / capped.sum(dim=1, keepdim=True)


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
    return -label_likelihood(F.log_softmax(logits, dim=1).exp(), given_labels, transition).log()


def _joint(probabilities: Tensor, given_labels: Tensor, transition: Tensor) -> Tensor:
    """Return `p(c)·T[c, given]`."""
    of_labels = transition.to(probabilities).mT[..., given_labels, :].movedim(-2, 0)
    while of_labels.dim() < probabilities.dim():  # the dimensions between the examples and the matrices
        of_labels = of_labels.unsqueeze(1)
    return probabilities * of_labels


def _positive(likelihood: Tensor) -> Tensor:
    # An estimated matrix may have zeros, and a sure prediction hits them: logarithms and quotients must stay finite.
    return likelihood.clamp(min=torch.finfo(likelihood.dtype).tiny)
