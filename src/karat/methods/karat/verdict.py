"""The verdict on the labels: by judges that never saw a label they judge, averaged over what the trusted labels allow.

Classes that overlap and labels that are wrong look alike: sharp predictions with a noisy matrix T make the given labels
as likely as soft predictions without any noise. Only labels that are known to be right tell the two apart. So T is one
of several hypotheses (`FAMILIES`: no noise, one rate, one rate with directions, a full matrix, or one of each example's
own; `rates.py`: a rate for each class), predictions are

    p_i = (1 − f)·softmax(s·Σ_j m_j·z_ij) + f·π

with a mixture m of the judges j, a sharpness s, a floor f that says how often they err where they are sure, and the
shares π of the true classes. For each hypothesis and each (m, s, f) T is fitted to the given labels, and

    log weight = Σ_t log p_t(trusted_t) + (w / noisy)·Σ_i log Σ_c p_i(c)·T[c, given_i] + log prior

where trusted labels are unseen, too, and the noisy ones together count as w labels: they are many, and they cannot tell
an error of the judges from one of the labels. The verdict is the mean of `q_i(c) ∝ p_i(c)·T[c, given_i]` by these
weights. Trusted examples that are drawn class by class are weighed by the shares of their classes.

The judges are those of `hearing.py`; for images also networks, each of examples that it has not learned.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from karat.methods.karat.constants import CONSTANTS, VerdictConstants
from karat.methods.karat.folds import Labels
from karat.methods.karat.heads import Judged
from karat.methods.karat.hearing import Hearing
from karat.methods.karat.hypotheses import (
    FAMILIES,
    MATRICES,
    Candidate,
    Labelling,
    is_even,
    mean_noise,
    noisy_count,
    posterior_of,
    predictions,
    shares_of,
    weighed_candidates,
    weighed_predictions,
)
from karat.methods.karat.rates import taken_off

TINY = 1e-9
LARGEST = 8.0  # logarithm of a factor of networks, and of a floor
MOST_PLANTED = 20_000_000  # numbers, where trusted examples are planted under every label


class Verdict(NamedTuple):
    """The classes without the own label (p), with it (q), the mean matrix T[true, given], the shares, the mixture."""

    probabilities: Tensor
    posterior: Tensor
    transition: Tensor
    shares: Tensor
    mixture: Tensor
    rates: Tensor = torch.empty(0, 3)
    """the share of wrong labels by each hypothesis, its standard error, and how much the hypothesis weighs"""
    caution: Tensor = torch.ones(())
    """the power of the posterior by which labels are changed"""


_Family = tuple[Judged, list[Candidate]]  # what judges said, and the candidates of a hypothesis


def decide(
    hearing: Hearing,
    labels: Labels,
    network: Tensor | None = None,
    constants: VerdictConstants = CONSTANTS.verdict,
    *,
    network_weighs: bool = True,
) -> Verdict:
    """Average over all hypotheses; `network` are the logits of networks that have not learned the labels they judge.

    `network_weighs`: hypotheses weigh more by which the networks find the given labels likelier.
    """
    families: list[_Family] = []
    predictable = -math.inf
    for family, judges in FAMILIES.items():
        if family == "directed" and labels.classes == 2:
            continue  # there is but one direction
        place = [*MATRICES].index(judges)
        said = Judged(hearing.noisy[place], hearing.trusted[place])
        evidence = hearing.transitions[place], hearing.shares[place], hearing.sample, hearing.unseen
        found = weighed_candidates(family, said, labels, *evidence, constants, predictable)
        families.append((said, found))
        if family == "none":
            best = max(found, key=lambda candidate: candidate.weight).predictions(said.noisy[:, hearing.sample])
            predictable = float(best.gather(1, labels.given[hearing.sample, None]).log().mean())
            against = constants.rates.against - bool(hearing.has_networks) * math.log(2) * labels.classes
            off = taken_off(found, said, labels, hearing.transitions[-1], hearing.sample, against, constants)
            families += [(said, of_hypothesis) for of_hypothesis in off]
    beliefs: Iterable[_Belief] = _each_candidate(families, labels.given, constants)
    if network is not None:
        before = _each_family(families, labels.given)
        heard = [_with_network(belief, network, labels, constants) for belief in before]
        if not network_weighs:
            heard = [one._replace(weight=belief.weight) for one, belief in zip(heard, before, strict=True)]
        beliefs = _weighed(heard)
    means, rates = [torch.zeros(())] * 5, []
    for one in beliefs:  # each is gone before the next one is made
        q = posterior_of(one.p, one.noise.reached)
        rates.append((*_rate(one, q, labels.given, constants), one.weight))
        parts = (one.p, q, one.noise.transition, one.shares, one.mixture)
        means = [whole + one.weight * part for whole, part in zip(means, parts, strict=True)]
    p, q, transition, shares, mixture = (whole.div_(whole.sum(dim=-1, keepdim=True)) for whole in means)
    caution = _caution(families, hearing, labels, constants)
    return Verdict(p, q, transition, shares, mixture, torch.tensor(rates), caution)


def _weighed(beliefs: Sequence["_Belief"]) -> list["_Belief"]:
    """Return beliefs with their shares of all weights in the place of logarithms."""
    weights = torch.tensor([belief.weight for belief in beliefs], dtype=torch.float64).softmax(dim=0).tolist()
    return [belief._replace(weight=weight) for belief, weight in zip(beliefs, weights, strict=True)]


def _caution(families: Sequence[_Family], hearing: Hearing, labels: Labels, constants: VerdictConstants) -> Tensor:
    """Return the power a ≤ 1 with which `q^a` claims no more than trusted labels allow, by standard errors.

    Every unseen trusted example is planted among the noisy ones under each label y that its class c may have got, with
    the weight T[c, y]. How likely `q^a` makes c says how sure a may be, with log a around 0 before anything is known.
    """
    pairs = [(said.trusted, candidate) for said, found in families for candidate in found]
    rows = hearing.unseen.nonzero().flatten()[: MOST_PLANTED // labels.classes**2]
    right, each = labels.trusted[rows], torch.arange(len(rows))
    planted = torch.zeros(len(rows), labels.classes, labels.classes)  # [example, true, given]
    shares, given = torch.zeros(labels.classes), torch.zeros(len(rows), labels.classes)
    for weight, (logits, one) in zip(shares_of([one for _, one in pairs]), pairs, strict=True):
        if weight >= constants.least_weight:
            p = one.predictions(logits[:, rows])
            matrices = one.matrices(p)
            joint = p[:, :, None] * matrices
            planted += weight * joint / joint.sum(dim=1, keepdim=True).clamp(min=TINY)
            given += weight * matrices.expand_as(joint)[each, right]
            shares += weight * one.shares
    counted = (shares / labels.trusted_shares.clamp(min=TINY))[right]  # they are drawn class by class
    counted = counted * counted.sum() / counted.square().sum().clamp(min=TINY)
    chances, claims = given * counted[:, None], planted.clamp(min=TINY).log()
    logarithms = torch.linspace(-1.5, 1.0, 26)
    likelihood = torch.stack(
        [((claims * power).log_softmax(dim=1)[each, right] * chances).sum() for power in logarithms.exp()]
    )
    belief = (likelihood - (logarithms / constants.caution_width).square() / 2).softmax(dim=0)
    mean = (belief * logarithms).sum()
    deviation = (belief * (logarithms - mean).square()).sum().sqrt()
    return (mean - constants.safe_errors * deviation).exp().clamp(max=1.0)


class _Belief(NamedTuple):
    """What is predicted under a hypothesis, and how much it weighs: a logarithm, where others are not known yet."""

    p: Tensor
    noise: Labelling
    shares: Tensor
    mixture: Tensor
    weight: float


def _each_candidate(families: Sequence[_Family], given: Tensor, constants: VerdictConstants) -> Iterator[_Belief]:
    """Yield what is believed under each candidate that weighs something, with its share of their weights."""
    pairs = [(said.noisy, candidate) for said, found in families for candidate in found]
    weights = shares_of([candidate for _, candidate in pairs])
    kept = [(weight, *pair) for weight, pair in zip(weights, pairs, strict=True) if weight >= constants.least_weight]
    whole = sum(weight for weight, *_ in kept)
    for weight, logits, one in kept:
        p = one.predictions(logits)
        noise = Labelling(one.transition, one.reached(p, given))
        yield _Belief(p, noise, one.shares, one.mixture, weight / whole)


def _each_family(families: Sequence[_Family], given: Tensor) -> list[_Belief]:
    """Return what is believed under each hypothesis, in the mean of its candidates."""
    weights = [torch.tensor([one.weight for one in found], dtype=torch.float64) for _, found in families]
    shares = [of_family.logsumexp(dim=0).item() for of_family in weights]
    return [
        _Belief(
            weighed_predictions([(said.noisy, one) for one in found]),
            mean_noise(said.noisy, found, given),
            found[0].shares,
            torch.stack([w * one.mixture for w, one in zip(shares_of(found), found, strict=True)]).sum(dim=0),
            share,
        )
        for share, (said, found) in zip(shares, families, strict=True)
    ]


def _with_network(belief: _Belief, network: Tensor, labels: Labels, constants: VerdictConstants) -> _Belief:
    """Return `p' = (1 − f)·softmax(α·log p + β·z) + f·π` with what makes the given labels likeliest under T.

    The noise stays what trusted labels allowed: networks have learned a verdict that these had a part in, so they are
    no unseen labels for networks. Given it the noisy labels, which are unseen, tell how sure the networks may be, and
    they weigh the hypothesis by p' as they did by p.
    """
    judged = torch.stack([belief.p.clamp(min=TINY).log(), network.log_softmax(dim=1)])
    start = torch.tensor([0.0, 0.0, math.log(constants.floors[0])])
    logarithms = start.clone().requires_grad_()  # of α, β and f
    optimizer = torch.optim.LBFGS([logarithms], max_iter=30, line_search_fn="strong_wolfe")

    def predicted() -> Tensor:
        # A step too far must not end in numbers that no later one comes back from.
        *factors, floor = logarithms.clamp(-LARGEST, LARGEST).exp().unbind()
        return predictions(judged, torch.stack(factors), 1.0, floor.clamp(max=0.5), belief.shares)

    def likelihoods(p: Tensor) -> Tensor:
        return (p * belief.noise.reached).sum(dim=1).clamp(min=TINY)

    def objective() -> Tensor:
        optimizer.zero_grad()
        likelihood = likelihoods(predicted()).log().sum()
        loss = (logarithms - start).square().sum() / 2 - likelihood
        loss.backward()
        return loss

    optimizer.step(objective)
    if not logarithms.isfinite().all():
        return belief  # as it was without networks
    p = predicted().detach()
    before, after = (likelihoods(of).log().mean().item() for of in (belief.p, p))
    return belief._replace(p=p, weight=belief.weight + noisy_count(labels, constants) * (after - before))


def _rate(belief: _Belief, q: Tensor, given: Tensor, constants: VerdictConstants) -> tuple[float, float]:
    """Return the share r of wrong labels, and its standard error by what the labels tell of r (Fisher information).

    A label has the likelihood `L(r) = (1 − r)·p(given) + r·(1 − p(given))/(classes − 1)` where wrong ones are spread
    evenly; how much it tells is the square of (log L)'. More labels do not make up for judges that err alike on all of
    them: some of what these leave open may be noise, or the other way round, and more where T is not one rate, which
    takes errors of judges for noise. Without any noise nothing is fitted, and nothing can err.
    """
    rate = 1 - q.gather(1, given[:, None]).mean().item()
    if bool((belief.noise.transition.diagonal() == 1).all()):
        return rate, 0.0
    p = belief.p
    right = p.gather(1, given[:, None]).squeeze(1)
    slope = ((1 - right) / (p.shape[1] - 1) - right) / (p * belief.noise.reached).sum(dim=1).clamp(min=TINY)
    by_chance = slope.double().square().sum().clamp(min=TINY).rsqrt().item()
    even = is_even(belief.noise.transition, belief.shares, 1e-3)
    left_open = 1 - p.amax(dim=1).mean().item()
    by_judges = left_open * (constants.open_error if even else constants.open_error_uneven)
    return rate, min(1.0, math.hypot(by_chance, by_judges))
