"""What judges say of the classes of all examples, under each hypothesis about the noise.

The judges: linear heads on features that know no label (`heads.py`), fitted under T; for short vectors also boosted
trees (`trees.py`), from whose predictions T is taken off; networks of images that predict given labels (`with_judge`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from karat.methods.karat.constants import CONSTANTS, VerdictConstants
from karat.methods.karat.folds import Folds, Labels, View
from karat.methods.karat.heads import Judged, fit_heads, judged_by, trusted_heads
from karat.methods.karat.hypotheses import (
    MATRICES,
    Candidate,
    believed_shares,
    mean_matrix,
    one_rate,
    weighed_candidates,
    weighed_predictions,
)
from karat.methods.karat.trees import Grown, grow_trees
from karat.methods.shared.forest import Forest
from karat.noise_matrix import (
    diagonally_dominant,
    fit_transition,
    trusted_transition,
    uniform_transition,
    without_noise,
)

Others = Iterable[tuple[Tensor, Sequence[Tensor]]]
"""Some noisy rows at a time, and their features in each view."""

TINY = 1e-9


class Hearing(NamedTuple):
    """What judges said under each hypothesis, logits [family, judge, example, class], and with which shares and T."""

    noisy: Tensor
    trusted: Tensor
    shares: Tensor
    """of the true classes [family, class]"""
    transitions: Tensor
    """T [family, true, given]"""
    sample: Tensor
    """noisy examples by which hypotheses are weighed"""
    unseen: Tensor
    """whether each trusted label is one that the judges of its example have not learned"""
    has_networks: Tensor = torch.zeros(()).bool()
    """whether the last judge are networks"""


def hear(
    views: Sequence[View],
    vectors: View | None,
    labels: Labels,
    folds: Folds,
    generator: torch.Generator,
    others: Others = (),
    constants: VerdictConstants = CONSTANTS.verdict,
) -> tuple[Hearing, Forest | None]:
    """Fit the judges under each hypothesis, in turns with T; return also the trees for new examples.

    `views` are of the noisy examples that heads learn from, `others` yields the rest. `vectors` are what trees look at,
    all of them; None where there are none or too long ones.
    """
    priors = [trusted_heads(view.trusted, labels, folds) for view in views]
    trees = None if vectors is None else grow_trees(vectors, labels, folds, constants.trees)
    rows = torch.randperm(len(labels.given), generator=generator)
    sample, learned = rows[folds.noisy[rows] >= 0][: constants.sample], folds.learned
    evidence = _Evidence(
        views,
        priors,
        None if trees is None else trees._replace(noisy=trees.noisy[learned]),
        labels._replace(given=labels.given[learned]),
        folds._replace(noisy=folds.noisy[learned]),
        torch.searchsorted(learned, sample),
    )
    heard: list[_Heard] = []
    for family in MATRICES:
        start = uniform_transition(labels.classes, 0.0 if family == "none" else constants.first_rate).float()
        if family == "full":
            start = _by_trusted(evidence, start) if len(labels.trusted) else _by_majority(heard, evidence.labels)
        heard.append(_heard(family, evidence, start, constants))
    noisy = torch.empty(len(heard), len(heard[0].said.noisy), *labels.given.shape, labels.classes)
    for said, one in zip(noisy, heard, strict=True):
        said[:, learned] = one.said.noisy
        if trees is not None:
            said[-1, folds.others] = without_noise(trees.noisy[folds.others], one.transition, one.shares).log()
    for some, looks in others:
        for place, look in enumerate(looks):
            for said, one in zip(noisy, heard, strict=True):
                said[place, some] = torch.addmm(one.heads[place][-1], look, one.heads[place][:-1])
    hearing = Hearing(
        noisy,
        torch.stack([one.said.trusted for one in heard]),
        torch.stack([one.shares for one in heard]),
        torch.stack([one.transition for one in heard]),
        sample,
        folds.trusted >= 0,
    )
    return hearing, None if trees is None else trees.forest


def with_judge(hearing: Hearing, predicted: Judged) -> Hearing:
    """Return the hearing with networks for a judge that predict given labels: T of each hypothesis is taken off."""
    off = [
        [without_noise(part.clamp(min=TINY), transition, shares).log() for part in predicted]
        for transition, shares in zip(hearing.transitions, hearing.shares, strict=True)
    ]
    noisy, trusted = (torch.stack(part)[:, None] for part in zip(*off, strict=True))
    others = hearing.noisy.shape[1] - int(hearing.has_networks)
    return hearing._replace(
        noisy=torch.cat([hearing.noisy[:, :others], noisy], dim=1),
        trusted=torch.cat([hearing.trusted[:, :others], trusted], dim=1),
        has_networks=torch.ones(()).bool(),
    )


class _Evidence(NamedTuple):
    """What judges are fitted to: features, heads of the trusted labels on them, trees, labels, parts."""

    views: Sequence[View]
    priors: Sequence[Tensor]
    trees: Grown | None
    labels: Labels
    folds: Folds
    sample: Tensor


class _Heard(NamedTuple):
    """What judges said under one hypothesis [judge, example, class], with which shares and T, and its candidates."""

    said: Judged
    shares: Tensor
    transition: Tensor
    candidates: list[Candidate]
    heads: list[Tensor]
    """of each view [feature, class], for examples that none has learned from"""


def _heard(family: str, evidence: _Evidence, transition: Tensor, constants: VerdictConstants) -> _Heard:
    """Fit heads under a hypothesis, in turns with T."""
    views, priors, trees, labels, folds, sample = evidence
    shares = labels.given.bincount(minlength=labels.classes).clamp(min=1) / len(labels.given)
    heads = [prior[:, :, None].repeat(1, 1, len(constants.strengths), 1) for prior in priors]
    for turn in range(constants.rounds):
        judged, of_others = [], []
        for place, view in enumerate(views):
            heads[place] = fit_heads(heads[place], view, priors[place], labels, folds, transition, shares, constants)
            own, together = judged_by(heads[place], view, labels, folds, transition, shares)
            judged.append(own)
            of_others.append(together)
        if trees is not None:
            given = trees.noisy, trees.trusted
            judged.append(Judged(*(without_noise(part, transition, shares).log() for part in given)))
        said = Judged(*(torch.stack(part) for part in zip(*judged, strict=True)))
        found = weighed_candidates(family, said, labels, transition, shares, sample, folds.trusted >= 0, constants)
        if turn < constants.rounds - 1:
            transition, shares = mean_matrix(found), believed_shares(said.noisy[:, sample], found, labels.given[sample])
    return _Heard(said, shares, transition, found, of_others)


def _by_trusted(evidence: _Evidence, start: Tensor) -> Tensor:
    """Return what the trusted labels alone say of T: by their own heads, or by what trees say of trusted examples."""
    views, priors, trees, labels, *_ = evidence
    if trees is not None:
        weight = 3.0  # trusted labels that count for the even matrix
        counts = labels.trusted.bincount(minlength=labels.classes)[:, None]
        said = trusted_transition(trees.trusted, labels.trusted)
        even = one_rate(said, counts.flatten())
        return (counts * said + weight * even) / (counts + weight)
    heads = [prior.mean(dim=1) for prior in priors]
    logits = [torch.addmm(head[-1], view.noisy, head[:-1]) for view, head in zip(views, heads, strict=True)]
    alone = torch.stack(logits).mean(dim=0).softmax(dim=1)
    return fit_transition(alone, labels.given, start, lambda counts: 0.1, rounds=30)


def _by_majority(heard: Sequence[_Heard], labels: Labels) -> Tensor:
    """Return T as it is if each example's class is the given label that is predicted for it.

    That is so where labels are right more often than wrong in any one way, and classes do not overlap.
    """
    pairs = [(one.said.noisy, candidate) for one in heard for candidate in one.candidates]
    p = weighed_predictions(pairs)
    hard = torch.eye(labels.classes)[p.argmax(dim=1)]
    start = fit_transition(hard, labels.given, uniform_transition(labels.classes, 0.5).float(), lambda counts: 0.1)
    return diagonally_dominant(start)
