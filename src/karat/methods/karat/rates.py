"""The hypothesis that each class has a rate of its own: some classes are labelled right, others mostly become another.

A full matrix has a number for each pair of classes, and a few trusted labels of each class seldom pay for so many. Here
a class c has one, the share r_c of its labels that are wrong, which is 0 as often as not; what wrong labels become
is read off the given labels (`towards`). Judges of the given labels say what p is under each r: `p·T = predicted`. Which
r the labels allow is sampled, one class at a time given the others (Gibbs), with every r_c of a grid weighed.
"""

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from karat.methods.karat.constants import RateConstants, VerdictConstants
from karat.methods.karat.folds import Labels
from karat.methods.karat.heads import Judged
from karat.methods.karat.hypotheses import TINY, Candidate, noisy_count
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
    count: int

    def matrices(self, rates: Tensor) -> Tensor:
        """Return T [..., true, given] for rates [..., class]."""
        return (1 - rates).diag_embed() + rates[..., None] * self.towards

    def shares(self, transitions: Tensor) -> Tensor:
        """Return the shares of the true classes with which T makes those of the given labels [..., class]."""
        even = torch.full_like(self.given_shares[None], 1 / len(self.given_shares))
        wanted = self.given_shares.expand(*transitions.shape[:-2], 1, -1)
        return without_noise(wanted, transitions, even, rounds=50).squeeze(-2)

    def log_weights(self, rates: Tensor, settings: Tensor) -> Tensor:
        """Return how likely the labels are for each of several rates [case, class]: a logarithm.

        `settings` are the sharpness and the floor of p, the same for all or one of each case [..., 2].
        """
        transitions = self.matrices(rates)
        shares = self.shares(transitions)[:, None]
        sharpness, floor = settings.expand(len(rates), 2)[:, :, None, None].unbind(dim=1)

        def predicted(given: Tensor) -> Tensor:
            p = without_noise(given, transitions, shares)
            return (1 - floor) * (p.log() * sharpness).softmax(dim=2) + floor * shares

        joint = (p := predicted(self.noisy)) * transitions.mT[:, self.given]
        likelihood = joint.sum(dim=2, keepdim=True).clamp(min=TINY)
        believed = (joint / likelihood).mean(dim=1, keepdim=True).clamp(min=0.02 / p.shape[2])
        of_trusted = predicted(self.trusted) * (self.trusted_shares / believed)
        of_trusted = of_trusted / of_trusted.sum(dim=2, keepdim=True)
        right = of_trusted[:, torch.arange(len(self.verified)), self.verified].clamp(min=TINY).log().sum(dim=1)
        return (right + self.count * likelihood.log().mean(dim=(1, 2))).double()


def sampled_rates(
    judge: Candidate, said: Judged, labels: Labels, full: Tensor, sample: Tensor, constants: VerdictConstants
) -> list[Candidate]:
    """Return samples of T with a rate for each class; their weights together are those of the hypothesis.

    `judge` predicts given labels, as judges do under the hypothesis of no noise, by what they `said`; `full` is where
    the search for what wrong labels become begins. There are none for more classes than can be sampled.
    """
    of_rates = constants.rates
    if labels.classes > of_rates.most_classes or not len(labels.trusted):
        return []
    evidence = _evidence(judge, said, labels, full, sample, constants)
    grid = torch.tensor((0.0, *of_rates.grid))
    prior = torch.tensor([of_rates.clean, *((1 - of_rates.clean) / len(of_rates.grid) for _ in of_rates.grid)])
    prior = prior.double().log()
    settings = torch.tensor([*itertools.product(of_rates.sharpness, of_rates.floors)])
    generator, rates, setting = torch.Generator().manual_seed(0), torch.zeros(labels.classes), settings[0]
    before = evidence.log_weights(rates.expand(len(settings), -1), settings).logsumexp(dim=0)
    drawn, conditional = [], torch.zeros(labels.classes, len(grid), dtype=torch.float64)
    for sweep in range(of_rates.forgotten + of_rates.samples):
        chances = evidence.log_weights(rates.expand(len(settings), -1), settings).softmax(dim=0)
        setting = settings[torch.multinomial(chances, 1, generator=generator)]
        for label in torch.randperm(labels.classes, generator=generator).tolist():
            cases = rates.repeat(len(grid), 1)
            cases[:, label] = grid
            chances = (evidence.log_weights(cases, setting) + prior).softmax(dim=0)
            rates[label] = grid[torch.multinomial(chances, 1, generator=generator)]
            conditional[label] += chances * (sweep >= of_rates.forgotten) / of_rates.samples
        drawn.append((rates.clone(), setting.flatten()))
    drawn = drawn[of_rates.forgotten :]
    # Chib's identity at the likeliest sample: log Z = log L(r) + log prior(r) − log posterior(r), the last by the mean
    # chances of each class's rate.
    weights = []
    for rates, _ in drawn:
        places = (rates[:, None] == grid).double().argmax(dim=1)
        likelihood = evidence.log_weights(rates.expand(len(settings), -1), settings).logsumexp(dim=0)
        weights.append((likelihood + prior[places].sum(), conditional.gather(1, places[:, None]).clamp(min=TINY)))
    best, posterior = max(weights, key=lambda pair: pair[0].item())
    weight = judge.weight + float(best - posterior.log().sum() - before) - math.log(len(drawn))
    transitions = evidence.matrices(torch.stack([rates for rates, _ in drawn]))
    return [
        Candidate(judge.mixture, *setting.tolist(), shares, transition, weight, of_given=judge)
        for (_, setting), shares, transition in zip(drawn, evidence.shares(transitions), transitions, strict=True)
    ]


def _evidence(
    judge: Candidate, said: Judged, labels: Labels, full: Tensor, sample: Tensor, constants: VerdictConstants
) -> _Evidence:
    given = labels.given[sample]
    noisy, trusted = judge.predictions(said.noisy[:, sample]), judge.predictions(said.trusted)
    shares = labels.given.bincount(minlength=labels.classes).clamp(min=1) / len(labels.given)
    transition = full.float()
    for _ in range(constants.rates.rounds):
        p = without_noise(noisy, transition, shares)
        transition = fit_transition(p, given, transition, lambda counts: 0.1, rounds=2)
    towards = transition - transition.diagonal().diag()
    towards = towards / towards.sum(dim=1, keepdim=True).clamp(min=TINY)
    verified, count = labels.trusted, noisy_count(labels, constants)
    return _Evidence(noisy, trusted, given, verified, labels.trusted_shares, shares, towards, count)
