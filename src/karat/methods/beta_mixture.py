"""A mixture of two beta distributions on (0, 1), fitted by expectation maximisation."""

from typing import NamedTuple

import torch
from torch import Tensor

# The density of a beta distribution may be infinite at 0 and 1.
BORDER = 1e-4


class BetaMixture(NamedTuple):
    """Two components, the one with the lower mean first: `Σ_k share_k · Beta(alpha_k, beta_k)`."""

    alphas: Tensor
    betas: Tensor
    shares: Tensor

    @property
    def means(self) -> Tensor:
        """Return α/(α+β) of both components."""
        return self.alphas / (self.alphas + self.betas)


def fit_beta_mixture(values: Tensor, iterations: int = 10) -> BetaMixture:
    """Fit the mixture to values in [0, 1]: start from Beta(1, 2) and Beta(2, 1), then weighted moments.

    With mean m and variance v of the values, weighted by a component's responsibilities, the method of moments gives
    `α = m·(m(1−m)/v − 1)` and `β = (1−m)·(m(1−m)/v − 1)`.
    """
    x = values.double().clamp(BORDER, 1 - BORDER)
    mixture = BetaMixture(*torch.tensor([[1.0, 2.0], [2.0, 1.0], [0.5, 0.5]], dtype=torch.float64))
    for _ in range(iterations):
        responsibilities = _responsibilities(mixture, x).clamp(min=1e-12)
        total = responsibilities.sum(dim=1)
        mean = (responsibilities * x).sum(dim=1) / total
        variance = (responsibilities * (x - mean[:, None]).square()).sum(dim=1) / total
        # Equal values have no variance; two values at the borders have more than any beta distribution.
        concentration = (mean * (1 - mean) / variance.clamp(min=1e-6) - 1).clamp(min=1e-2)
        mixture = BetaMixture(mean * concentration, (1 - mean) * concentration, total / total.sum())
    order = mixture.means.argsort()
    return BetaMixture(mixture.alphas[order], mixture.betas[order], mixture.shares[order])


def upper_posterior(mixture: BetaMixture, values: Tensor) -> Tensor:
    """Return the probability that a value is of the component with the higher mean.

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
