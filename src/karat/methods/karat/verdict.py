"""The verdict on the labels: by judges that never saw a label they judge, averaged over what the trusted labels allow.

Classes that overlap and labels that are wrong look alike: sharp predictions with a noisy matrix T make the given labels
as likely as soft predictions without any noise. Only labels that are known to be right tell the two apart. So T is one
of several hypotheses (`FAMILIES`: no noise, one rate, a full matrix), predictions are

    p_i = (1 − f)·softmax(s·Σ_j m_j·z_ij) + f·π

with a mixture m of the judges j, a sharpness s, a floor f that says how often they err where they are sure, and the
shares π of the true classes. For each hypothesis and each (m, s, f) T is fitted to the given labels, and

    log weight = Σ_t log p_t(trusted_t) + (w / noisy)·Σ_i log Σ_c p_i(c)·T[c, given_i] + log prior

where trusted labels are unseen, too, and the noisy ones together count as w labels: they are many, and they cannot tell
an error of the judges from one of the labels. The verdict is the mean of `q_i(c) ∝ p_i(c)·T[c, given_i]` by these
weights. Trusted examples that are drawn class by class are weighed by the shares of their classes.

The judges: linear heads on features that know no label, held to those of the trusted labels and fitted under T; for
short vectors also boosted trees that predict the given label, from which T is taken off.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from karat.methods.karat.constants import CONSTANTS, VerdictConstants
from karat.methods.karat.judge import trusted_head
from karat.noise_matrix import (
    fit_transition,
    label_likelihood,
    symmetric_transition,
    true_posterior,
    trusted_transition,
    uniform_transition,
)

TINY = 1e-9


class View(NamedTuple):
    """Features of the noisy and of the trusted examples."""

    noisy: Tensor
    trusted: Tensor


class Labels(NamedTuple):
    """The given labels, the trusted ones, and how many classes there are."""

    given: Tensor
    trusted: Tensor
    classes: int

    @property
    def trusted_shares(self) -> Tensor:
        """Return the share of each class among the trusted examples."""
        return self.trusted.bincount(minlength=self.classes).clamp(min=1) / len(self.trusted)


class Verdict(NamedTuple):
    """The classes without the own label (p), with it (q), and the mean matrix T[true, given]."""

    probabilities: Tensor
    posterior: Tensor
    transition: Tensor


class _Folds(NamedTuple):
    """Which part each example belongs to.

    A trusted one whose part is -1 is learned by all heads. A noisy one whose part is -1 is learned by none, where there
    are more of them than heads can be fitted to, and judged by all of them together.
    """

    parts: int
    noisy: Tensor
    trusted: Tensor


class _Judged(NamedTuple):
    """Logits of one judge, each example's by those that have not seen its label."""

    noisy: Tensor
    trusted: Tensor


class _Candidate(NamedTuple):
    """A hypothesis with its numbers, and how much it weighs (a logarithm)."""

    judged: Sequence[_Judged]
    mixture: Tensor
    sharpness: float
    floor: float
    shares: Tensor
    transition: Tensor
    weight: float


def fit_verdict(
    views: Sequence[View],
    vectors: View | None,
    labels: Labels,
    generator: torch.Generator,
    constants: VerdictConstants = CONSTANTS.verdict,
) -> Verdict:
    """Judge all noisy examples; `vectors` are what trees look at, None where there are none or too long ones."""
    folds = _deal(labels, generator, constants)
    priors = [_trusted_heads(view.trusted, labels, folds) for view in views]
    trees = None if vectors is None or _too_few(labels, folds, constants) else _trees(vectors, labels, folds, constants)
    sample = torch.randperm(len(labels.given), generator=generator)[: constants.sample]
    candidates: list[_Candidate] = []
    for family in FAMILIES:
        candidates += _under(family, views, priors, trees, labels, folds, sample, constants)
    weights = torch.tensor([candidate.weight for candidate in candidates], dtype=torch.float64).softmax(dim=0)
    verdict = [torch.zeros(len(labels.given), labels.classes) for _ in range(2)]
    transition = torch.zeros(labels.classes, labels.classes)
    for weight, candidate in zip(weights.tolist(), candidates, strict=True):
        if weight < constants.least_weight:
            continue
        logits = torch.stack([judged.noisy for judged in candidate.judged])
        p = _predictions(logits, candidate.mixture, candidate.sharpness, candidate.floor, candidate.shares)
        verdict[0] += weight * p
        verdict[1] += weight * true_posterior(p, labels.given, candidate.transition)
        transition += weight * candidate.transition
    p, q = (part / part.sum(dim=1, keepdim=True) for part in verdict)
    return Verdict(p, q, transition / transition.sum(dim=1, keepdim=True))


def _under(
    family: str,
    views: Sequence[View],
    priors: Sequence[Tensor],
    trees: _Judged | None,
    labels: Labels,
    folds: _Folds,
    sample: Tensor,
    constants: VerdictConstants,
) -> list[_Candidate]:
    """Fit heads under the hypothesis, in turns with T; return its candidates."""
    shares = labels.given.bincount(minlength=labels.classes).clamp(min=1) / len(labels.given)
    transition = uniform_transition(labels.classes, 0.0 if family == "none" else constants.first_rate).float()
    if family == "full":
        transition = _by_trusted(views, priors, trees, labels, transition)
    heads = [prior[:, :, None].repeat(1, 1, len(constants.strengths), 1) for prior in priors]
    found: list[_Candidate] = []
    for _ in range(1 if family == "none" else constants.rounds):
        judged = []
        for place, view in enumerate(views):
            heads[place] = _descend(heads[place], view, priors[place], labels, folds, transition, shares, constants)
            judged.append(_by_heads(heads[place], view, labels, folds, transition, shares))
        if trees is not None:
            judged.append(_Judged(*(_without_noise(part, transition, shares) for part in trees)))
        found = _weighed(family, judged, labels, transition, shares, sample, constants)
        weights = torch.tensor([candidate.weight for candidate in found]).softmax(dim=0).tolist()
        transition = sum(w * one.transition for w, one in zip(weights, found, strict=True))
        p = _mean_predictions(found, weights, sample)
        shares = true_posterior(p, labels.given[sample], transition).mean(dim=0).clamp(min=0.02 / labels.classes)
    return found


def _weighed(
    family: str,
    judged: Sequence[_Judged],
    labels: Labels,
    transition: Tensor,
    shares: Tensor,
    sample: Tensor,
    constants: VerdictConstants,
) -> list[_Candidate]:
    """Weigh every mixture, sharpness and floor under this hypothesis."""
    given, classes, trusted = labels.given[sample], labels.classes, labels.trusted
    count = max(len(trusted), constants.noisy_count)
    noisy_logits = torch.stack([one.noisy[sample] for one in judged])
    trusted_logits = torch.stack([one.trusted for one in judged])
    prior = -constants.full_prior * (classes - 1) if family == "full" else 0.0
    found = []
    for mixture, sharpness, floor in itertools.product(_mixtures(len(judged)), constants.sharpness, constants.floors):
        p = _predictions(noisy_logits, mixture, sharpness, floor, shares)
        matrix = transition
        for _ in range(4):
            believed = true_posterior(p, given, matrix).mean(dim=0)
            matrix = FAMILIES[family](fit_transition(p, given, matrix, lambda counts: 0.1), believed)
        believed = true_posterior(p, given, matrix).mean(dim=0).clamp(min=0.02 / classes)
        unseen = _predictions(trusted_logits, mixture, sharpness, floor, shares) * (labels.trusted_shares / believed)
        right = (unseen / unseen.sum(dim=1, keepdim=True)).gather(1, trusted[:, None]).clamp(min=TINY).log().sum()
        noisy = label_likelihood(p, given, matrix).log().mean() * count
        log_sharpness = torch.tensor(sharpness).log() / constants.sharpness_width
        weight = float(right + noisy - log_sharpness**2 / 2) + prior
        found.append(_Candidate(judged, mixture, sharpness, floor, shares, matrix, weight))
    return found


def _predictions(logits: Tensor, mixture: Tensor, sharpness: float, floor: float, shares: Tensor) -> Tensor:
    mixed = (logits * mixture[:, None, None]).sum(dim=0)
    return (1 - floor) * (mixed * sharpness).softmax(dim=1) + floor * shares


def _mean_predictions(found: Sequence[_Candidate], weights: Sequence[float], sample: Tensor) -> Tensor:
    logits = torch.stack([one.noisy[sample] for one in found[0].judged])
    parts = [
        weight * _predictions(logits, one.mixture, one.sharpness, one.floor, one.shares)
        for weight, one in zip(weights, found, strict=True)
        if weight > 1e-3
    ]
    return torch.stack(parts).sum(dim=0)


def _mixtures(judges: int) -> list[Tensor]:
    """Return each judge alone, and all groups of them with equal shares.

    >>> [mixture.tolist() for mixture in _mixtures(2)]
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    """
    groups = [group for size in range(1, judges + 1) for group in itertools.combinations(range(judges), size)]
    return [torch.eye(judges)[list(group)].mean(dim=0) for group in groups]


def _none(transition: Tensor, shares: Tensor) -> Tensor:
    return torch.eye(len(transition))


def _one_rate(transition: Tensor, shares: Tensor) -> Tensor:
    """Return the matrix with the share of right labels that this one has over all classes, wrong ones spread evenly.

    >>> _one_rate(torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0.5, 0.5]))
    tensor([[0.8000, 0.2000],
            [0.2000, 0.8000]])
    """
    right = (transition.diagonal() * shares).sum() / shares.sum()
    return symmetric_transition(len(transition), min(max(1 - right.item(), 0.0), 1.0)).to(transition)


def _full(transition: Tensor, shares: Tensor) -> Tensor:
    return transition


FAMILIES = {"none": _none, "one": _one_rate, "full": _full}


def _deal(labels: Labels, generator: torch.Generator, constants: VerdictConstants) -> _Folds:
    """Deal the examples into parts; trusted ones class by class, where each class has one for every part."""
    parts = constants.folds
    order = torch.randperm(len(labels.given), generator=generator)
    most = constants.most_numbers // (parts * len(constants.strengths) * labels.classes)
    noisy = torch.where(order < most, order % parts, -1)
    trusted = torch.full_like(labels.trusted, -1)
    if labels.trusted.bincount(minlength=labels.classes).min() >= parts:
        order = torch.randperm(len(trusted), generator=generator)
        order = order[labels.trusted[order].argsort(stable=True)]
        trusted[order] = torch.arange(len(order)) % parts
    return _Folds(parts, noisy, trusted)


def _with_one(features: Tensor) -> Tensor:
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def _logits(heads: Tensor, features: Tensor) -> Tensor:
    """Return logits[example, fold, strength, class]."""
    return (_with_one(features) @ heads.flatten(1)).unflatten(1, heads.shape[1:])


def _unseen_logits(heads: Tensor, features: Tensor, parts: Tensor, chunk: int = 10_000) -> Tensor:
    """Return logits[example, strength, class] by the heads of each example's part, or by all where that is -1."""
    found = []
    for some, of in zip(features.split(chunk), parts.split(chunk), strict=True):
        logits = _logits(heads, some)
        own = logits[torch.arange(len(some)), of.clamp(min=0)]
        found.append(torch.where(of[:, None, None] < 0, logits.mean(dim=1), own))
    return torch.cat(found)


def _trusted_heads(features: Tensor, labels: Labels, folds: _Folds) -> Tensor:
    """Return for each part a head [feature, part, class] of the trusted labels outside of it."""
    outside = [folds.trusted != part for part in range(folds.parts)]
    inputs = _with_one(features)
    return torch.stack([trusted_head(inputs[used], labels.trusted[used], labels.classes) for used in outside], dim=1)


def _descend(
    heads: Tensor,
    view: View,
    prior: Tensor,
    labels: Labels,
    folds: _Folds,
    transition: Tensor,
    shares: Tensor,
    constants: VerdictConstants,
) -> Tensor:
    """Take some steps of L-BFGS with the heads of all parts and strengths, under T."""
    numbers, used = torch.arange(folds.parts), folds.noisy >= 0
    features, given = view.noisy[used], labels.given[used]
    outside, trusted_outside = (of[:, None] != numbers for of in (folds.noisy[used], folds.trusted))
    strengths, shift = torch.tensor(constants.strengths), (labels.trusted_shares / shares).log()
    reached, rows = transition.T[given][:, None, None], torch.arange(len(labels.trusted))
    heads = heads.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([heads], max_iter=constants.iterations, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimizer.zero_grad()
        likelihood = (_logits(heads, features).softmax(dim=-1) * reached).sum(dim=-1).clamp(min=TINY)
        trusted = (_logits(heads, view.trusted) + shift).log_softmax(dim=-1)[rows, :, :, labels.trusted]
        moved = (heads - prior[:, :, None])[:-1].square().sum(dim=(0, 1, 3))
        loss = (moved * strengths).sum() - (likelihood.log() * outside[:, :, None]).sum()
        loss = (loss - (trusted * trusted_outside[:, :, None]).sum()) / len(given)
        loss.backward()
        return loss

    optimizer.step(objective)
    return heads.detach()


def _by_heads(heads: Tensor, view: View, labels: Labels, folds: _Folds, transition: Tensor, shares: Tensor) -> _Judged:
    """Return the logits of heads that have not seen the label; strengths vote by how likely they make these labels."""
    noisy = _unseen_logits(heads, view.noisy, folds.noisy)
    trusted, rows = _unseen_logits(heads, view.trusted, folds.trusted), torch.arange(len(labels.trusted))
    likelihood = (noisy.softmax(dim=-1) * transition.T[labels.given][:, None]).sum(dim=-1).clamp(min=TINY)
    right = (trusted + (labels.trusted_shares / shares).log()).log_softmax(dim=-1)[rows, :, labels.trusted]
    votes = (likelihood.log().sum(dim=0) + right.sum(dim=0)).softmax(dim=0)[:, None]
    return _Judged((noisy * votes).sum(dim=1), (trusted * votes).sum(dim=1))


def _by_trusted(
    views: Sequence[View], priors: Sequence[Tensor], trees: _Judged | None, labels: Labels, start: Tensor
) -> Tensor:
    """Return what the trusted labels alone say of T: by their own heads, or by what trees say of trusted examples."""
    if trees is not None:
        weight = 3.0  # trusted labels that count for the even matrix
        counts = labels.trusted.bincount(minlength=labels.classes)[:, None]
        said = trusted_transition(trees.trusted, labels.trusted)
        even = _one_rate(said, counts.flatten())
        return (counts * said + weight * even) / (counts + weight)
    logits = [_with_one(view.noisy) @ prior.mean(dim=1) for view, prior in zip(views, priors, strict=True)]
    alone = torch.stack(logits).mean(dim=0).softmax(dim=1)
    return fit_transition(alone, labels.given, start, lambda counts: 0.1, rounds=30)


def _too_few(labels: Labels, folds: _Folds, constants: VerdictConstants) -> bool:
    """Return whether trees would have too little to grow on."""
    outside = [labels.given[(folds.noisy != part) & (folds.noisy >= 0)] for part in range(folds.parts)]
    return len(labels.given) < constants.fewest_for_trees or any(len(given.unique()) < 2 for given in outside)


def _trees(vectors: View, labels: Labels, folds: _Folds, constants: VerdictConstants) -> _Judged:
    """Return the given label's predicted probabilities, each by trees that have not seen it.

    Trees stop growing where unseen labels become less likely.
    """
    stages = constants.tree_stages
    noisy, trusted = ({stage: torch.zeros(len(part), labels.classes) for stage in stages} for part in vectors)
    for part in range(folds.parts):
        outside = (folds.noisy != part) & (folds.noisy >= 0)
        model = HistGradientBoostingClassifier(
            max_iter=stages[-1],
            max_leaf_nodes=constants.tree_leaves,
            l2_regularization=constants.tree_strength,
            early_stopping=False,
            random_state=0,
        ).fit(vectors.noisy[outside].numpy(), labels.given[outside].numpy())
        known = torch.from_numpy(model.classes_)
        for inputs, parts, found in zip(vectors, folds[1:], (noisy, trusted), strict=True):
            rows = ((parts == part) | (parts < 0)).nonzero().flatten()
            share = torch.where(parts[rows] < 0, 1 / folds.parts, 1.0)[:, None]  # those of no part ask all trees
            if not len(rows):
                continue
            for stage, p in enumerate(model.staged_predict_proba(inputs[rows].numpy()), start=1):
                if stage in found:
                    found[stage][rows[:, None], known] += share * torch.from_numpy(p).float()
    likely = {stage: p.gather(1, labels.given[:, None]).clamp(min=1e-6).log().sum() for stage, p in noisy.items()}
    best = max(likely, key=lambda stage: likely[stage].item())
    return _Judged(noisy[best].clamp(min=1e-4), trusted[best].clamp(min=1e-4))


def _without_noise(predicted: Tensor, transition: Tensor, shares: Tensor, rounds: int = 15) -> Tensor:
    """Return the logarithm of p with `p·T` near the predicted given labels, by expectation-maximisation from π on."""
    p = shares.expand_as(predicted)
    for _ in range(rounds):
        p = p * ((predicted / (p @ transition).clamp(min=TINY)) @ transition.T)
        p = p / p.sum(dim=1, keepdim=True).clamp(min=TINY)
    return p.clamp(min=1e-5).log()
