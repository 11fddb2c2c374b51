"""A mixture of two beta distributions on (0, 1), fitted by expectation maximisation."""

from typing import NamedTuple

import torch
from torch import Tensor

# The density of a beta distribution may be infinite at 0 and 1.
BORDER = 1e-4


class BetaMixture(NamedTuple):
    """Two components, the one of the lower values first: `Σ_k share_k · Beta(alpha_k, beta_k)`."""

    alphas: Tensor
    betas: Tensor
    shares: Tensor

    @property
    def means(self) -> Tensor:
        """Return α/(α+β) of both components."""
        return self.alphas / (self.alphas + self.betas)


def fit_beta_mixture(values: Tensor, iterations: int = 10) -> BetaMixture:
    """Fit the mixture to values in [0, 1], starting from their lower and upper half of the interval.

    With mean m and variance v of the values, weighted by a component's responsibilities, the method of moments gives
    `α = m·(m(1−m)/v − 1)` and `β = (1−m)·(m(1−m)/v − 1)`. Arazo et al. start from Beta(1, 2) and Beta(2, 1), from where
    ten iterations often miss the smaller component.
    """
    x = values.double().clamp(BORDER, 1 - BORDER)
    responsibilities = torch.stack([x <= 0.5, x > 0.5]).double()
    for _ in range(iterations):
        responsibilities = responsibilities.clamp(min=1e-6)  # a component that nothing belongs to keeps its moments
        total = responsibilities.sum(dim=1)
        mean = (responsibilities * x).sum(dim=1) / total
        variance = (responsibilities * (x - mean[:, None]).square()).sum(dim=1) / total
        # Equal values have no variance; two values at the borders have more than any beta distribution.
        concentration = (mean * (1 - mean) / variance.clamp(min=1e-6) - 1).clamp(min=1e-2)
        mixture = BetaMixture(mean * concentration, (1 - mean) * concentration, total / total.sum())
        responsibilities = _responsibilities(mixture, x)
    return mixture


def upper_posterior(mixture: BetaMixture, values: Tensor) -> Tensor:
    """Return the probability that a value is of the component of the higher values.

    Above the value where it is highest it does not fall again: the tail of a broad lower component may else win there.
    """
    x = values.double().clamp(BORDER, 1 - BORDER)
    posterior = _responsibilities(mixture, x)[1]
    best = posterior.argmax()
    return torch.where(x >= x[best], posterior[best], posterior)


def _responsibilities(mixture: BetaMixture, x: Tensor) -> Tensor:
    a, b = mixture.alphas[:, None], mixture.betas[:, None]
    normaliser = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    log_density = (a - 1) * x.log() + (b - 1) * (1 - x).log() - normaliser
    return torch.softmax(mixture.shares[:, None].log() + log_density, dim=0)
