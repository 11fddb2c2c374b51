"""How often the interval of `karat estimate` holds the true noise rate, and how wide it is, in simulated runs.

    python benchmarks/sample_coverage.py [--count 100] [--runs 10]

A run: 370 to 20,000 labels of which 0 to 60% are wrong, and claimed qualities that tell right from wrong ones a little
or well (two normal distributions 1, 2.5 or 5 standard deviations apart) and are calibrated, or too sure, or not sure
enough, or shifted to one side, or have nothing to do with the labels at all.
"""

import argparse
import itertools
import math
import statistics
from typing import NamedTuple

import torch

from karat.audit.sample import Share, draw, sampled_share

SIZES = (370, 2_000, 20_000)
RATES = (0.0, 0.02, 0.1, 0.3, 0.6)
APART = (1.0, 2.5, 5.0)
CLAIMS = {  # what becomes of calibrated log odds
    "calibrated": lambda odds, generator: odds,
    "too sure": lambda odds, generator: 2.5 * odds,
    "not sure enough": lambda odds, generator: 0.4 * odds,
    "calls too many right": lambda odds, generator: odds + 2,
    "calls too many wrong": lambda odds, generator: odds - 2,
    "random": lambda odds, generator: 3 * torch.randn(len(odds), generator=generator, dtype=torch.float64),
}


class Simulated(NamedTuple):
    """One run: how its qualities are claimed, how many labels are wrong, and what a sample says of that."""

    claims: str
    rate: float
    truth: float
    found: Share

    @property
    def holds(self) -> bool:
        """Return whether the truth is in the interval."""
        return self.found.low - 1e-9 <= self.truth <= self.found.high + 1e-9

    @property
    def width(self) -> float:
        """Return the width of the interval."""
        return self.found.high - self.found.low


def simulated(size: int, rate: float, apart: float, claims: str, count: int, generator: torch.Generator) -> Simulated:
    """Make up a run, draw a sample and estimate the noise rate from it."""
    wrong = (torch.rand(size, generator=generator) < rate).double()
    score = torch.randn(size, generator=generator, dtype=torch.float64) + apart * (0.5 - wrong)
    prior = min(max(rate, 0.005), 0.995)
    odds = CLAIMS[claims](math.log((1 - prior) / prior) + apart * score, generator)
    drawn = draw(odds.sigmoid(), count, generator)
    return Simulated(claims, rate, wrong.mean().item(), sampled_share((-odds).sigmoid(), drawn, wrong[drawn.places]))


def all_simulated(count: int = 100, runs: int = 1, seed: int = 0) -> list[Simulated]:
    """Simulate so many runs of each world."""
    generator = torch.Generator().manual_seed(seed)
    worlds = list(itertools.product(SIZES, RATES, APART, CLAIMS)) * runs
    return [simulated(size, rate, apart, claims, count, generator) for size, rate, apart, claims in worlds]


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="rows in a sample")
    parser.add_argument("--runs", type=int, default=10, help="runs of each world")
    options = parser.parse_args()
    found = all_simulated(options.count, options.runs)
    groups = {"all": found}
    groups |= {claims: [one for one in found if one.claims == claims] for claims in CLAIMS}
    groups |= {f"{rate:.0%} wrong": [one for one in found if one.rate == rate] for rate in RATES}
    print("| claims or noise | runs | truth in the interval | median width |\n|---|---|---|---|")
    for name, group in groups.items():
        share, width = statistics.mean(one.holds for one in group), statistics.median(one.width for one in group)
        print(f"| {name} | {len(group):,} | {share:.1%} | {100 * width:.1f} points |")


if __name__ == "__main__":
    main()
