"""The beta mixture: known mixtures recovered, densities as in scipy, monotone posterior, degenerate values."""

import numpy as np
import pytest
import torch
from scipy import stats

from karat.methods.shared.beta_mixture import BetaMixture, fit_beta_mixture, upper_posterior


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8, 0.9])
def test_recovers_a_known_mixture(share):
    """Draw from Beta(2, 8), mean 0.2, and Beta(9, 3), mean 0.75: 4,000 draws and 10 iterations find them."""
    random = np.random.default_rng(0)
    high = random.random(4000) < share
    values = np.where(high, random.beta(9, 3, 4000), random.beta(2, 8, 4000))
    mixture = fit_beta_mixture(torch.from_numpy(values))
    assert mixture.means.tolist() == pytest.approx([0.2, 0.75], abs=0.05)
    assert mixture.shares.tolist() == pytest.approx([1 - share, share], abs=0.03)
    found = (upper_posterior(mixture, torch.from_numpy(values)) > 0.5).numpy()
    assert (found == high).mean() > 0.96


def test_one_iteration_is_the_method_of_moments():
    """After the first one the components have the moments of the values below and above one half."""
    x = torch.tensor([0.1, 0.2, 0.4, 0.6, 0.9], dtype=torch.float64)
    mixture = fit_beta_mixture(x, iterations=1)
    for index, part in enumerate((x[:3].numpy(), x[3:].numpy())):
        alpha, beta = mixture.alphas[index].item(), mixture.betas[index].item()
        assert stats.beta.mean(alpha, beta) == pytest.approx(part.mean(), rel=1e-4)
        assert stats.beta.var(alpha, beta) == pytest.approx(part.var(), rel=1e-4)
        assert mixture.shares[index].item() == pytest.approx(len(part) / 5, rel=1e-4)


def test_posterior_is_bayes_rule():
    mixture = BetaMixture(*torch.tensor([[2.0, 6.0], [5.0, 2.0], [0.7, 0.3]], dtype=torch.float64))
    x = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    low, high = 0.7 * stats.beta.pdf(x, 2, 5), 0.3 * stats.beta.pdf(x, 6, 2)
    np.testing.assert_allclose(upper_posterior(mixture, x), high / (low + high), rtol=1e-9)


def test_posterior_does_not_fall_above_its_maximum():
    """A broad low component, Beta(0.5, 0.6), is denser near 1 than a narrow Beta(20, 10)."""
    mixture = BetaMixture(*torch.tensor([[0.5, 20.0], [0.6, 10.0], [0.5, 0.5]], dtype=torch.float64))
    x = torch.linspace(0.3, 0.999, 50, dtype=torch.float64)
    raw = 0.5 * stats.beta.pdf(x, 20, 10) / (0.5 * stats.beta.pdf(x, 20, 10) + 0.5 * stats.beta.pdf(x, 0.5, 0.6))
    assert raw[-1] < raw.max() / 2
    assert upper_posterior(mixture, x).diff().min() >= 0


@pytest.mark.parametrize("values", [torch.zeros(5), torch.full((5,), 0.5), torch.tensor([0.0, 1.0]), torch.ones(1)])
def test_degenerate_values_give_probabilities(values):
    posterior = upper_posterior(fit_beta_mixture(values), values)
    assert posterior.isfinite().all()
    assert ((posterior >= 0) & (posterior <= 1)).all()
