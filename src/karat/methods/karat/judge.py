"""A judge of the noisy examples: linear heads on features, each example judged by a head that never saw its label.

A head `p_i = softmax(β·Wᵀ[h_i, 1])` on the features h and a noise matrix `T[true, given]` explain the labels:

    max over W, T, β of   Σ_i log Σ_c p_i(c)·T[c, given_i]  +  Σ_t log p_t(trusted_t)  −  s·‖W − W0‖²

T and β are those under which the labels that the heads have not seen are most likely, and each of several strengths s
has a vote in proportion to that likelihood: nobody has to know the noise. On features of a trained network, which have
seen the trusted labels, W0 is its last layer. On features that no label had a part in, W0 is fitted to the trusted
labels alone, and trusted examples are judged without their label, too.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from karat.methods.karat.constants import CONSTANTS, Constants, JudgeConstants
from karat.noise_matrix import Prior, fit_transition, label_likelihood, smoothing


class Evidence(NamedTuple):
    """Features of the noisy and trusted examples and their labels, on one device."""

    noisy: Tensor
    given_labels: Tensor
    trusted: Tensor
    trusted_labels: Tensor


class Judge(NamedTuple):
    """What `fit_judge` found."""

    logits: Tensor
    """of the noisy examples, each without its own label"""
    trusted_logits: Tensor | None
    """of the trusted examples, each without its own label; None where all heads or the features have seen it"""
    transition: Tensor
    """T[true, given]"""
    weight: Tensor
    bias: Tensor


class _Folds(NamedTuple):
    """Which examples the heads learn from, and who judges whom."""

    parts: int
    used: Tensor
    of_noisy: Tensor  # the fold of each used example
    of_trusted: Tensor  # `parts` where every head learns from it

    @property
    def unseen(self) -> Tensor:
        """Return which trusted examples a head has not seen."""
        return self.of_trusted < self.parts


def fit_judge(
    evidence: Evidence,
    transition: Tensor,
    head: tuple[Tensor, Tensor] | None,
    generator: torch.Generator,
    constants: Constants = CONSTANTS,
) -> Judge:
    """Fit heads, matrix and sharpness; `head` is W0 as (weight, bias), None where the features know no label.

    The generator deals the folds: the same one in every fit of a run gives every fit the same folds.
    The search for T starts at `transition`; without a head, at what the trusted labels alone say from there. Fewer than
    five of a class may say it wrongly: then it starts at both.
    """
    classes, seen_before = len(transition), smoothing(constants.matrix.smoothing)
    if head is None:
        mean = torch.zeros_like(evidence.noisy[0])
        deviation = torch.ones_like(mean)
    else:
        mean, deviation = evidence.noisy.mean(dim=0), evidence.noisy.std(dim=0) + 1e-4
    noisy, trusted = ((part - mean) / deviation for part in (evidence.noisy, evidence.trusted))
    noisy, trusted = (torch.cat([part, part.new_ones(len(part), 1)], dim=1) for part in (noisy, trusted))
    scaled, transition = evidence._replace(noisy=noisy, trusted=trusted), transition.to(noisy)
    strengths = torch.tensor(constants.judge.strengths if head else constants.judge.strengths_untrained).to(noisy)
    folds = _deal(scaled, classes, len(strengths), head is None, generator, constants.judge)
    if head is None:
        outside = [folds.of_trusted != fold for fold in range(folds.parts)]
        heads = [trusted_head(trusted[used], evidence.trusted_labels[used], classes) for used in outside]
        prior = torch.stack(heads, dim=1)
        alone = (noisy @ prior.mean(dim=1)).softmax(dim=1)
        by_trusted = fit_transition(alone, evidence.given_labels, transition, seen_before, rounds=50)
        starts = torch.stack([by_trusted] if folds.unseen.all() else [by_trusted, transition])
    else:
        weight, bias = head
        prior = torch.cat([weight.T * deviation[:, None], (bias + weight @ mean)[None]])
        prior = prior[:, None].repeat(1, folds.parts, 1)
        starts = transition[None]
    found = _fitted(scaled, folds, prior, starts, strengths, constants)
    weight = found.weight[:, :-1] / deviation
    return found._replace(weight=weight, bias=found.weight[:, -1] - weight @ mean)


def _deal(
    evidence: Evidence,
    classes: int,
    strengths: int,
    unseen_trusted: bool,
    generator: torch.Generator,
    constants: JudgeConstants,
) -> _Folds:
    """Deal the noisy examples into folds, and the trusted ones, class by class, where each class has enough of them."""
    labels, device, parts = evidence.trusted_labels, evidence.noisy.device, constants.folds
    shuffled = torch.randperm(len(evidence.noisy), generator=generator).to(device)
    used = shuffled[: max(parts * classes, constants.most_numbers // (parts * strengths * classes))]
    of_trusted = torch.full_like(labels, parts)
    if unseen_trusted and labels.bincount(minlength=classes).min() >= parts:
        order = labels.argsort(stable=True)
        of_trusted[order] = torch.arange(len(labels), device=device) % parts
    return _Folds(parts, used, torch.arange(len(used), device=device) % parts, of_trusted)


class _Unseen(NamedTuple):
    """Logits by heads that have not seen the label, [example, strength, class], and the labels."""

    logits: Tensor
    given: Tensor
    trusted_logits: Tensor
    trusted_labels: Tensor

    def loss(self, sharpness: Tensor, matrices: Tensor) -> Tensor:
        """Return how unlikely the labels are under each strength's sharpness and matrix."""
        probabilities = (self.logits * sharpness[:, None]).softmax(dim=-1)
        noisy = -label_likelihood(probabilities, self.given, matrices).log().sum(dim=0)
        log_p = (self.trusted_logits * sharpness[:, None]).log_softmax(dim=-1)
        rows = torch.arange(len(self.trusted_labels), device=log_p.device)
        return (noisy - log_p[rows, :, self.trusted_labels].sum(dim=0)) / len(self.given)


def _fitted(
    evidence: Evidence, folds: _Folds, prior: Tensor, starts: Tensor, strengths: Tensor, constants: Constants
) -> Judge:
    """Fit heads of all folds, starts and strengths at once; they vote by how likely they make unseen labels."""
    used = evidence._replace(noisy=evidence.noisy[folds.used], given_labels=evidence.given_labels[folds.used])
    given = used.given_labels
    rows, of_trusted = torch.arange(len(given), device=prior.device), folds.of_trusted.clamp(max=folds.parts - 1)
    trusted_rows = torch.arange(len(of_trusted), device=prior.device)
    matrices = starts.repeat_interleave(len(strengths), dim=0)
    first = torch.arange(len(matrices), device=prior.device) < len(strengths)
    doubt = constants.matrix.doubt * first * (len(starts) - 1)
    strengths = strengths.repeat(len(starts))
    heads, sharpness = prior[:, :, None].repeat(1, 1, len(strengths), 1), prior.new_ones(len(strengths))
    for _ in range(constants.judge.rounds):
        heads = _descend(heads, used, folds, prior, strengths, matrices)
        logits = _at(used.noisy, heads)[rows, folds.of_noisy]
        trusted_logits = _at(evidence.trusted, heads)[trusted_rows, of_trusted]
        unseen = _Unseen(logits, given, trusted_logits[folds.unseen], evidence.trusted_labels[folds.unseen])
        sharpness, matrices = _calibrate(unseen, sharpness, matrices, smoothing(constants.matrix.smoothing))
    losses = unseen.loss(sharpness, matrices) * len(given) + doubt
    if len(starts) > 1:  # trusted labels that all heads have seen still tell a start that swaps classes
        losses = losses + _trusted_loss(evidence, heads).sum(dim=(0, 1)) / folds.parts
    votes = (-losses).softmax(dim=0)
    scales = (votes * sharpness)[:, None]
    average = (heads.mean(dim=1) * scales).sum(dim=1)
    all_logits = evidence.noisy @ average  # examples that no head learned from are judged by all heads together
    all_logits[folds.used] = (logits * scales).sum(dim=1)
    return Judge(
        all_logits,
        (trusted_logits * scales).sum(dim=1) if folds.unseen.all() else None,
        (votes[:, None, None] * matrices).sum(dim=0),
        average.T,
        average[-1],
    )


def _at(features: Tensor, heads: Tensor) -> Tensor:
    """Return logits[example, fold, strength, class]."""
    return (features @ heads.flatten(1)).unflatten(1, heads.shape[1:])


def _trusted_loss(evidence: Evidence, heads: Tensor) -> Tensor:
    """Return −log p(trusted)[example, fold, strength]."""
    log_p = _at(evidence.trusted, heads).log_softmax(dim=-1)
    return -log_p.gather(3, evidence.trusted_labels.view(-1, 1, 1, 1).expand(*log_p.shape[:3], 1)).squeeze(3)


def _descend(
    heads: Tensor, evidence: Evidence, folds: _Folds, prior: Tensor, strengths: Tensor, matrices: Tensor
) -> Tensor:
    """Take some steps of L-BFGS with all heads; the noisy examples of the evidence are those that the heads use."""
    given = evidence.given_labels
    numbers = torch.arange(folds.parts, device=heads.device)
    outside, trusted_outside = (fold[:, None] != numbers for fold in (folds.of_noisy, folds.of_trusted))
    heads = heads.detach().clone().requires_grad_()
    optimizer = torch.optim.LBFGS([heads], max_iter=10, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        noisy = -label_likelihood(_at(evidence.noisy, heads).softmax(dim=-1), given, matrices).log()
        noisy = (noisy * outside[:, :, None]).sum()
        trusted = (_trusted_loss(evidence, heads) * trusted_outside[:, :, None]).sum()
        moved = (heads - prior[:, :, None])[:-1].square().sum(dim=(0, 1, 3))
        loss = (noisy + trusted + (moved * strengths).sum()) / len(given)
        loss.backward()
        return loss

    optimizer.step(objective)
    return heads.detach()


def _calibrate(unseen: _Unseen, sharpness: Tensor, matrices: Tensor, seen_before: Prior) -> tuple[Tensor, Tensor]:
    """Fit sharpness and matrix of each strength to labels that its heads have not seen, in turns."""
    for _ in range(3):
        sharpness = _descend_sharpness(unseen, sharpness, matrices)
        probabilities = (unseen.logits * sharpness[:, None]).softmax(dim=-1)
        matrices = torch.stack(
            [
                fit_transition(probabilities[:, place], unseen.given, matrix, seen_before, rounds=5)
                for place, matrix in enumerate(matrices)
            ]
        )
    return sharpness, matrices


def _descend_sharpness(unseen: _Unseen, sharpness: Tensor, matrices: Tensor) -> Tensor:
    scale = sharpness.log().requires_grad_()
    optimizer = torch.optim.LBFGS([scale], max_iter=5, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = unseen.loss(scale.exp(), matrices).sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    return scale.detach().clamp(-2, 2).exp()


def trusted_head(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Fit a head [feature, class] to these labels alone, held at 0 by one unit of strength but for its last row."""
    head = features.new_zeros(features.shape[1], classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([head], max_iter=50, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(features @ head, labels, reduction="sum") + head[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(objective)
    return head.detach()
