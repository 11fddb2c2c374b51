"""The label model: what the true classes are, by several judges together, all given labels and the trusted ones.

The judges' logits, of heads that never saw the label they are compared with, are added up, each with a sharpness of
its own: `p_i = softmax(Σ_j β_j·z_ij)`. With the noise matrix T the label then counts once:
`q_i(c) ∝ p_i(c)·T[c, given_i]`. β and T are those under which the labels are most likely.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.karat.constants import CONSTANTS, Constants
from karat.methods.karat.judge import Judge
from karat.noise_matrix import fit_transition, label_likelihood, smoothing, true_posterior, uniform_transition


class LabelModel(NamedTuple):
    """What `fit_label_model` found."""

    logits: Tensor
    """of p, the judges' together"""
    probabilities: Tensor
    """p: the classes of the noisy examples, each judged without its own label."""
    posterior: Tensor
    """q: the classes of the noisy examples, with their labels."""
    transition: Tensor
    """T[true, given]"""
    sharpness: Tensor
    """β of each judge"""


def fit_label_model(
    judges: Sequence[Judge], given_labels: Tensor, trusted_labels: Tensor, constants: Constants = CONSTANTS
) -> LabelModel:
    """Weigh the judges and fit the noise matrix, from that of the first judge on.

    A priori every judge has the same share: where the labels say little, as 90% of noise leaves it, none is silenced.
    That most labels of a class are wrong in the same way is believed only if it makes the labels e^doubt times as
    likely as without judges: judges that know nothing fit such a matrix as well as any other. Then none is heard.
    """
    logits = torch.stack([judge.logits for judge in judges])
    unseen = [judge.trusted_logits for judge in judges if judge.trusted_logits is not None]
    trusted_logits = torch.stack(unseen) if len(unseen) == len(judges) else None
    transition, seen_before = judges[0].transition, smoothing(constants.matrix.smoothing)
    share = logits.new_full((len(judges), 1, 1), 1 / len(judges)).log()
    scale = share.clone().requires_grad_()

    def objective() -> Tensor:
        optimizer.zero_grad()
        probabilities = (logits * scale.exp()).sum(dim=0).softmax(dim=1)
        likelihood = label_likelihood(probabilities, given_labels, transition)
        loss = ((scale - share) / constants.label_model.width).square().sum() / 2 - likelihood.log().sum()
        if trusted_logits is not None:
            loss = loss + F.cross_entropy((trusted_logits * scale.exp()).sum(dim=0), trusted_labels, reduction="sum")
        loss.backward()
        return loss

    for _ in range(constants.label_model.rounds):
        optimizer = torch.optim.LBFGS([scale], max_iter=10, line_search_fn="strong_wolfe")
        optimizer.step(objective)
        sharpness = scale.detach().exp()
        together = (logits * sharpness).sum(dim=0)
        probabilities = together.softmax(dim=1)
        transition = fit_transition(probabilities, given_labels, transition, seen_before, rounds=5)
    evidence = _evidence(probabilities, given_labels, transition)
    if _most_are_wrong_alike(transition) and evidence < constants.matrix.doubt:
        sharpness, together = torch.zeros_like(sharpness), torch.zeros_like(together)
        probabilities = together.softmax(dim=1)
        transition = first_transition(len(transition), constants).to(transition)
    return LabelModel(
        together,
        probabilities,
        true_posterior(probabilities, given_labels, transition),
        transition,
        sharpness.flatten(),
    )


def first_transition(classes: int, constants: Constants = CONSTANTS) -> Tensor:
    """Return a first guess at T, from where fits start."""
    return uniform_transition(classes, constants.matrix.first_rate, torch.float32)


def _most_are_wrong_alike(transition: Tensor) -> bool:
    """Return whether more than half of a class has one and the same wrong label.

    >>> _most_are_wrong_alike(torch.tensor([[0.6, 0.4], [0.0, 1.0]])), _most_are_wrong_alike(torch.eye(2).flip(0))
    (False, True)
    """
    wrong = transition * (1 - torch.eye(len(transition)).to(transition))
    return bool((wrong > 0.5).any())


def _evidence(probabilities: Tensor, given_labels: Tensor, transition: Tensor) -> float:
    """Return by how much the log-likelihood of the labels is above that of judges that know nothing."""
    likelihood = label_likelihood(probabilities, given_labels, transition)
    shares = given_labels.bincount(minlength=len(transition)) / len(given_labels)
    return (likelihood / shares[given_labels]).log().sum().item()
