"""The label model: what the true classes are, by several judges together, all given labels and the trusted ones.

The judges' logits, of heads that never saw the label they are compared with, are added up, each with a temperature of
its own: `p_i = softmax(Σ_j τ_j·z_ij)`. With the noise matrix T the label then counts once:
`q_i(c) ∝ p_i(c)·T[c, given_i]`. τ and T are those under which the labels are most likely.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.karat.judge import DOUBT, Judge, expected_transition, noise_posterior, start_transition

ROUNDS = 10
WIDTH = 0.3  # standard deviation of the prior of log τ


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
    temperatures: Tensor
    """τ of each judge"""


def fit_label_model(judges: Sequence[Judge], given_labels: Tensor, trusted_labels: Tensor) -> LabelModel:
    """Weigh the judges and fit the noise matrix, from that of the first judge on.

    A priori every judge has the same share: where the labels say little, as 90% of noise leaves it, none is silenced.
    That most labels of a class are wrong in the same way is believed only if it makes the labels e^DOUBT times as
    likely as without judges: judges that know nothing fit such a matrix as well as any other. Then none is heard.
    """
    logits = torch.stack([judge.logits for judge in judges])
    unseen = [judge.trusted_logits for judge in judges if judge.trusted_logits is not None]
    trusted_logits = torch.stack(unseen) if len(unseen) == len(judges) else None
    transition = judges[0].transition
    share = logits.new_full((len(judges), 1, 1), 1 / len(judges)).log()
    scale = share.clone().requires_grad_()

    def objective() -> Tensor:
        optimizer.zero_grad()
        probabilities = (logits * scale.exp()).sum(dim=0).softmax(dim=1)
        reached = (probabilities * transition.T[given_labels]).sum(dim=1)
        loss = ((scale - share) / WIDTH).square().sum() / 2 - reached.clamp(
            min=torch.finfo(reached.dtype).tiny
        ).log().sum()
        if trusted_logits is not None:
            loss = loss + F.cross_entropy((trusted_logits * scale.exp()).sum(dim=0), trusted_labels, reduction="sum")
        loss.backward()
        return loss

    for _ in range(ROUNDS):
        optimizer = torch.optim.LBFGS([scale], max_iter=10, line_search_fn="strong_wolfe")
        optimizer.step(objective)
        temperatures = scale.detach().exp()
        together = (logits * temperatures).sum(dim=0)
        probabilities = together.softmax(dim=1)
        transition = expected_transition(probabilities, given_labels, transition, rounds=5)
    if _most_are_wrong_alike(transition) and _evidence(probabilities, given_labels, transition) < DOUBT:
        temperatures, together = torch.zeros_like(temperatures), torch.zeros_like(together)
        probabilities, transition = together.softmax(dim=1), start_transition(len(transition)).to(transition)
    return LabelModel(
        together,
        probabilities,
        noise_posterior(probabilities, given_labels, transition),
        transition,
        temperatures.flatten(),
    )


def _most_are_wrong_alike(transition: Tensor) -> bool:
    """Return whether more than half of a class has one and the same wrong label.

    >>> _most_are_wrong_alike(torch.tensor([[0.6, 0.4], [0.0, 1.0]])), _most_are_wrong_alike(torch.eye(2).flip(0))
    (False, True)
    """
    wrong = transition * (1 - torch.eye(len(transition)).to(transition))
    return bool((wrong > 0.5).any())


def _evidence(probabilities: Tensor, given_labels: Tensor, transition: Tensor) -> float:
    """Return by how much the log-likelihood of the labels is above that of judges that know nothing."""
    reached = (probabilities * transition.T[given_labels]).sum(dim=1)
    shares = given_labels.bincount(minlength=len(transition)) / len(given_labels)
    return (reached / shares[given_labels]).clamp(min=torch.finfo(reached.dtype).tiny).log().sum().item()
