"""Hypotheses whose T is taken off what judges say of the given labels: one rate for all classes, or one for each.

A full matrix has a number for each pair of classes, and a few trusted labels of each class seldom pay for so many. With
a rate for each class, c has one number, the share r_c of its labels that are wrong, which is 0 as often as not; what
wrong labels become is read off the given labels. Judges of the given labels say what p is under each r (`p·T` is what
they predict), so the given labels are nearly as likely under all of them, and trusted labels tell. Which r_c they allow
is sampled, one class at a time given the others (Gibbs).
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from karat.methods.karat.constants import RateConstants, VerdictConstants
from karat.methods.karat.folds import Labels
from karat.methods.karat.heads import Judged
from karat.methods.karat.hypotheses import TINY, Candidate, blur, noisy_count
from karat.noise_matrix import fit_transition, without_noise


class _Evidence(NamedTuple):
    """The given labels' probabilities of sampled noisy examples and of trusted ones, their labels, and the scale."""

    noisy: Tensor
    trusted: Tensor
    given: Tensor
    verified: Tensor
    trusted_shares: Tensor
    given_shares: Tensor
    towards: Tensor
    labels: int
    """as how many the noisy ones count together"""

    def matrices(self, rates: Tensor) -> Tensor:
        """Return T [..., true, given] for rates [..., class]."""
        return (1 - rates).diag_embed() + rates[..., None] * self.towards

    def shares(self, transitions: Tensor) -> Tensor:
        """Return the shares of the true classes with which T makes those of the given labels [..., class]."""
        even = torch.full_like(self.given_shares[None], 1 / len(self.given_shares))
        wanted = self.given_shares.expand(*transitions.shape[:-2], 1, -1)
        return without_noise(wanted, transitions, even, rounds=50).squeeze(-2)

    def log_weights(self, rates: Tensor, settings: Tensor) -> Tensor:
        """Return how likely the labels are for several rates [case, class] and settings [setting, 2]: a logarithm.

        A setting is the sharpness and the floor of p. Returned is [case, setting].
        """
        transitions = self.matrices(rates)
        shares = self.shares(transitions)[:, None]
        logits = [without_noise(given, transitions, shares).log() for given in (self.noisy, self.trusted)]
        reached, each = transitions.mT[:, self.given], torch.arange(len(self.verified))
        found = []
        for sharpness, floor in settings.tolist():
            p, of_trusted = ((1 - floor) * (sharpness * part).softmax(dim=2) + floor * shares for part in logits)
            joint = p * reached
            likelihood = joint.sum(dim=2, keepdim=True).clamp(min=TINY)
            believed = (joint / likelihood).mean(dim=1, keepdim=True).clamp(min=0.02 / p.shape[2])
            of_trusted = of_trusted * (self.trusted_shares / believed)
            of_trusted = of_trusted / of_trusted.sum(dim=2, keepdim=True)
            right = of_trusted[:, each, self.verified].clamp(min=TINY).log().sum(dim=1)
            found.append(right + self.labels * likelihood.log().mean(dim=(1, 2)))
        return torch.stack(found, dim=1).double()

    def candidate(self, judge: Candidate, rates: Tensor, setting: Tensor, weight: float) -> Candidate:
        """Return the candidate with these rates."""
        transition = self.matrices(rates)
        shares = self.shares(transition[None])[0]
        sharpness, floor = setting.tolist()
        return Candidate(judge.mixture, sharpness, floor, shares, transition, weight, of_given=judge)


def taken_off(
    found: Sequence[Candidate],
    said: Judged,
    labels: Labels,
    full: Tensor,
    sample: Tensor,
    against: float,
    constants: VerdictConstants,
) -> list[list[Candidate]]:
    """Return the candidates of both hypotheses: one rate for all classes, and one for each.

    Those `found` under the hypothesis of no noise predict given labels, by what judges `said`; `full` is where the
    search for what wrong labels become begins. A rate for each class has so many nats `against` it. There are none
    without trusted labels, which alone weigh them, nor for more classes than can be sampled.
    """
    if labels.classes > constants.rates.most_classes or not len(labels.trusted):
        return []
    judge = max(found, key=lambda candidate: candidate.weight)
    evidence = _evidence(judge, said, labels, full, sample, constants)
    settings = torch.tensor([*itertools.product(constants.rates.sharpness, constants.rates.floors)])
    clean = evidence.log_weights(torch.zeros(1, labels.classes), settings).logsumexp(dim=1)
    before = float(torch.tensor([one.weight for one in found], dtype=torch.float64).logsumexp(dim=0) - clean)
    even = _even(judge, evidence, settings, constants.rates)
    sampled = _sampled(judge, evidence, settings, constants.rates)
    return [
        [one._replace(weight=before + one.weight) for one in even],
        [
            one._replace(weight=before + one.weight - against + constants.blur_prior * blur(one.transition, one.shares))
            for one in sampled
        ],
    ]


def _even(judge: Candidate, evidence: _Evidence, settings: Tensor, constants: RateConstants) -> list[Candidate]:
    """Return a candidate for each rate that all classes may have, as likely as each other before any label is seen."""
    classes = len(evidence.towards)
    evidence = evidence._replace(towards=(1 - torch.eye(classes)) / (classes - 1))
    found = []
    for share in constants.even:
        rates = torch.full((classes,), share * (1 - 1 / classes))
        weights = evidence.log_weights(rates[None], settings)[0]
        weight = float(weights.logsumexp(dim=0)) - math.log(len(constants.even))
        found.append(evidence.candidate(judge, rates, settings[weights.argmax()], weight))
    return found


def _sampled(judge: Candidate, evidence: _Evidence, settings: Tensor, constants: RateConstants) -> list[Candidate]:
    """Return samples of the classes' rates, which share the weight of their hypothesis."""
    classes, samples = len(evidence.towards), constants.samples
    grid = torch.tensor((0.0, *constants.grid))
    prior = torch.tensor([constants.clean, *((1 - constants.clean) / len(constants.grid) for _ in constants.grid)])
    prior = prior.double().log()
    generator, rates = torch.Generator().manual_seed(0), torch.zeros(classes)
    drawn, conditional = [], torch.zeros(classes, len(grid), dtype=torch.float64)
    for sweep in range(-constants.forgotten, samples):
        weights = evidence.log_weights(rates[None], settings)[0]
        setting = settings[torch.multinomial(weights.softmax(dim=0), 1, generator=generator)]
        for label in torch.randperm(classes, generator=generator).tolist():
            cases = rates.repeat(len(grid), 1)
            cases[:, label] = grid
            chances = (evidence.log_weights(cases, setting)[:, 0] + prior).softmax(dim=0)
            rates[label] = grid[torch.multinomial(chances, 1, generator=generator)]
            conditional[label] += chances * (sweep >= 0) / samples
        if sweep >= 0:
            drawn.append((rates.clone(), setting[0]))
    # Chib's identity at the likeliest sample: log Z = log L(r) + log prior(r) − log posterior(r), the last by the mean
    # chances of each class's rate.
    kept = torch.stack([rates for rates, _ in drawn])
    places = (kept[:, :, None] == grid).double().argmax(dim=2)  # [sample, class]
    likelihood = evidence.log_weights(kept, settings).logsumexp(dim=1) + prior[places].sum(dim=1)
    best = likelihood.argmax()
    posterior = conditional.gather(1, places[best][:, None]).clamp(min=TINY).log().sum()
    weight = float(likelihood[best] - posterior) - math.log(samples)
    return [evidence.candidate(judge, rates, setting, weight) for rates, setting in drawn]


def _evidence(
    judge: Candidate, said: Judged, labels: Labels, full: Tensor, sample: Tensor, constants: VerdictConstants
) -> _Evidence:
    if labels.classes > 2:  # what wrong labels become is found by the other half
        sample = sample[: max(len(labels.given) // 2, 1)]
    given = labels.given[sample]
    noisy, trusted = judge.predictions(said.noisy[:, sample]), judge.predictions(said.trusted)
    shares = labels.given.bincount(minlength=labels.classes).clamp(min=1) / len(labels.given)
    towards = _towards(judge, said, labels, full, shares, sample, constants.rates)
    verified, count = labels.trusted, min(noisy_count(labels, constants), len(sample))
    return _Evidence(noisy, trusted, given, verified, labels.trusted_shares, shares, towards, count)


def _towards(
    judge: Candidate,
    said: Judged,
    labels: Labels,
    full: Tensor,
    shares: Tensor,
    sample: Tensor,
    constants: RateConstants,
) -> Tensor:
    """Return what wrong labels become [true, given], by labels that rates are not weighed by.

    What is found by the same ones makes them likelier by chance.
    """
    others = torch.ones(len(labels.given), dtype=torch.bool)
    others[sample] = False
    rows = others.nonzero().flatten()[: constants.most_others]
    given, predicted = labels.given[rows], judge.predictions(said.noisy[:, rows])
    transition = full.float()
    for _ in range(constants.rounds):
        p = without_noise(predicted, transition, shares)
        transition = fit_transition(p, given, transition, lambda counts: 0.1, rounds=2)
    towards = transition - transition.diagonal().diag()
    return towards / towards.sum(dim=1, keepdim=True).clamp(min=TINY)
