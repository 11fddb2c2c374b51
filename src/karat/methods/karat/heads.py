"""Linear heads on features that know no label, held to those of the trusted labels and fitted under a noise matrix."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.karat.constants import VerdictConstants
from karat.methods.karat.folds import Folds, Labels, View

TINY = 1e-9


class Judged(NamedTuple):
    """Logits of one judge, each example's by those that have not seen its label."""

    noisy: Tensor
    trusted: Tensor


def trusted_heads(features: Tensor, labels: Labels, folds: Folds) -> Tensor:
    """Return for each part a head [feature, part, class] of the trusted labels outside of it."""
    outside = [folds.trusted != part for part in range(folds.parts)]
    inputs = with_one(features)
    return torch.stack([_trusted_head(inputs[used], labels.trusted[used], labels.classes) for used in outside], dim=1)


def fit_heads(
    heads: Tensor,
    view: View,
    prior: Tensor,
    labels: Labels,
    folds: Folds,
    transition: Tensor,
    shares: Tensor,
    constants: VerdictConstants,
) -> Tensor:
    """Take some steps of L-BFGS with the heads [feature, part, strength, class] of all parts and strengths, under T."""
    numbers, used = torch.arange(folds.parts), folds.noisy >= 0
    features, given = with_one(view.noisy[used]), labels.given[used]
    outside, trusted_outside = (of != numbers[:, None] for of in (folds.noisy[used], folds.trusted))
    shift, shape = (labels.trusted_shares / shares).log(), heads.shape
    trusted, right = with_one(view.trusted), F.one_hot(labels.trusted, labels.classes).T.float()
    held = torch.tensor(constants.strengths).repeat_interleave(labels.classes).repeat(folds.parts)
    start, free = prior[:, :, None].expand(shape), torch.ones(len(heads), 1)
    free[-1] = 0.0  # offsets are not held
    heads = heads.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([heads], max_iter=constants.iterations, line_search_fn="strong_wolfe")

    def unlikely(inputs: Tensor, offset: Tensor, reached: Tensor, counted: Tensor, slope: Tensor) -> float:
        """Return −Σ log Σ_c p(c)·reached(c), and add its slope: p less what is believed with the label."""
        # Classes stand before examples: a softmax over the last of few numbers takes ten times as long.
        logits = (heads.detach().flatten(1).T @ inputs.T).unflatten(0, shape[1:])
        p = logits.add_(offset[:, None]).softmax(dim=2)
        joint = p * reached
        likelihood = joint.sum(dim=2, keepdim=True).clamp_(min=TINY)
        difference = p.sub_(joint.div_(likelihood)).mul_(counted[:, None, None])
        slope.addmm_(inputs.T, difference.flatten(0, 2).T)
        return -float((likelihood.squeeze(2).log_() * counted[:, None]).sum())

    def objective() -> Tensor:
        moved = (heads.detach() - start).flatten(1) * free
        slope = 2 * moved * held
        loss = float((moved.square().sum(dim=0) * held).sum())
        loss += unlikely(trusted, shift, right, trusted_outside, slope)
        for first in range(0, len(given), constants.chunk):
            rows = slice(first, first + constants.chunk)
            reached = transition[:, given[rows]]
            loss += unlikely(features[rows], torch.zeros_like(shift), reached, outside[:, rows], slope)
        heads.grad = slope.div_(len(given)).view(shape)
        return torch.tensor(loss / len(given))

    optimizer.step(objective)
    return heads.detach()


def judged_by(heads: Tensor, view: View, labels: Labels, folds: Folds, transition: Tensor, shares: Tensor) -> Judged:
    """Return the logits of heads that have not seen the label; strengths vote by how likely they make these labels."""
    noisy = _unseen_logits(heads, view.noisy, folds.noisy)
    trusted, rows = _unseen_logits(heads, view.trusted, folds.trusted), torch.arange(len(labels.trusted))
    likelihood = (noisy.softmax(dim=-1) * transition.T[labels.given][:, None]).sum(dim=-1).clamp(min=TINY)
    right = (trusted + (labels.trusted_shares / shares).log()).log_softmax(dim=-1)[rows, :, labels.trusted]
    unseen = right[folds.trusted >= 0].sum(dim=0)
    votes = (likelihood.log().sum(dim=0) + unseen).softmax(dim=0)[:, None]
    return Judged((noisy * votes).sum(dim=1), (trusted * votes).sum(dim=1))


def with_one(features: Tensor) -> Tensor:
    """Return the features with a last one that is 1, for the bias."""
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def _logits(heads: Tensor, features: Tensor) -> Tensor:
    """Return logits[example, fold, strength, class]."""
    return (with_one(features) @ heads.flatten(1)).unflatten(1, heads.shape[1:])


def _unseen_logits(heads: Tensor, features: Tensor, parts: Tensor, chunk: int = 10_000) -> Tensor:
    """Return logits[example, strength, class] by the heads of each example's part, or by all where that is -1."""
    found = []
    for some, of in zip(features.split(chunk), parts.split(chunk), strict=True):
        logits = _logits(heads, some)
        own = logits[torch.arange(len(some)), of.clamp(min=0)]
        found.append(torch.where(of[:, None, None] < 0, logits.mean(dim=1), own))
    return torch.cat(found)


def _trusted_head(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Fit a head [feature, class] to these labels alone, held at 0 by one unit of strength but for its last row.

    It tells classes apart that the labels have; of the others it knows nothing, and their columns stay 0.
    """
    head, (known, places) = features.new_zeros(features.shape[1], classes), labels.unique(return_inverse=True)
    if not len(known):
        return head
    head.requires_grad_()
    optimizer = torch.optim.LBFGS([head], max_iter=50, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(features @ head[:, known], places, reduction="sum") + head[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    return head.detach()
