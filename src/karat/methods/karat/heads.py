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
    learned = [_rows_of(folds.noisy, part).split(constants.chunk) for part in range(folds.parts)]
    trusted = [_rows_of(folds.trusted, part) for part in (*range(folds.parts), -1)]
    others = [[other for other in range(folds.parts) if other != part] for part in (*range(folds.parts), -1)]
    shift, right = (labels.trusted_shares / shares).log(), torch.eye(labels.classes)
    held = torch.tensor(constants.strengths)[:, None]
    start, count = prior[:, :, None], sum(len(rows) for chunks in learned for rows in chunks)
    heads = heads.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([heads], max_iter=constants.iterations, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        moved = heads.detach() - start
        moved[-1] = 0.0  # offsets are not held
        slope = 2 * moved * held
        loss = float((moved.square() * held).sum())
        for of_part, rows, chunks in zip(others, trusted, (*learned, ()), strict=True):
            asked = heads.detach()[:, of_part]
            found = torch.zeros_like(asked)
            if len(rows):
                loss += _unlikely(asked, view.trusted[rows], right[:, labels.trusted[rows]], shift, found)
            for some in chunks:
                reached = transition[:, labels.given[some]]
                loss += _unlikely(asked, view.noisy[some], reached, torch.zeros_like(shift), found)
            slope[:, of_part] += found
        heads.grad = slope.div_(count)
        return torch.tensor(loss / count)

    optimizer.step(objective)
    return heads.detach()


def _rows_of(parts: Tensor, part: int) -> Tensor:
    return (parts == part).nonzero().flatten()


def _unlikely(heads: Tensor, inputs: Tensor, reached: Tensor, shift: Tensor, slope: Tensor) -> float:
    """Return −Σ log Σ_c p(c)·reached(c) over the heads, and add its slope: p less what is believed with the label.

    `p = softmax(Wᵀx + shift)`, `reached` is [class, example].
    """
    # Classes stand before examples: a softmax over the last of few numbers takes ten times as long.
    weights, offsets = heads[:-1].flatten(1), (heads[-1] + shift).flatten()
    p = torch.addmm(offsets[:, None], weights.T, inputs.T).unflatten(0, heads.shape[1:]).softmax(dim=2)
    joint = p * reached
    likelihood = joint.sum(dim=2, keepdim=True).clamp_(min=TINY)
    difference = p.sub_(joint.div_(likelihood)).flatten(0, 2)
    slope.flatten(1)[:-1].addmm_(inputs.T, difference.T)
    slope.flatten(1)[-1] += difference.sum(dim=1)
    return -float(likelihood.log_().sum())


def judged_by(
    heads: Tensor, view: View, labels: Labels, folds: Folds, transition: Tensor, shares: Tensor
) -> tuple[Judged, Tensor]:
    """Return the logits of heads that have not seen the label, and one head [feature, class] for examples of no part.

    Strengths vote by how likely they make the labels, and parts have equal votes.
    """
    noisy = _unseen_logits(heads, view.noisy, folds.noisy)
    trusted, rows = _unseen_logits(heads, view.trusted, folds.trusted), torch.arange(len(labels.trusted))
    likelihood = (noisy.softmax(dim=-1) * transition.T[labels.given][:, None]).sum(dim=-1).clamp(min=TINY)
    right = (trusted + (labels.trusted_shares / shares).log()).log_softmax(dim=-1)[rows, :, labels.trusted]
    unseen = right[folds.trusted >= 0].sum(dim=0)
    votes = (likelihood.log().sum(dim=0) + unseen).softmax(dim=0)[:, None]
    return Judged((noisy * votes).sum(dim=1), (trusted * votes).sum(dim=1)), (heads.mean(dim=1) * votes).sum(dim=1)


def with_one(features: Tensor) -> Tensor:
    """Return the features with a last one that is 1, for the bias."""
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def _unseen_logits(heads: Tensor, features: Tensor, parts: Tensor) -> Tensor:
    """Return logits[example, strength, class] by the heads of each example's part, or by all where that is -1."""
    found = features.new_empty(len(features), *heads.shape[2:])
    for part in parts.unique().tolist():
        rows, asked = _rows_of(parts, part), heads.mean(dim=1) if part < 0 else heads[:, part]
        found[rows] = (features[rows] @ asked[:-1].flatten(1)).unflatten(1, asked.shape[1:]).add_(asked[-1])
    return found


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
