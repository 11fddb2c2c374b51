"""Two Gaussians fitted to the losses of all examples: the lower one is of the right labels (Li et al. 2020)."""

import warnings

import torch
from torch import Tensor


def clean_probability(losses: Tensor) -> Tensor:
    """Return for each loss the probability of the lower of two Gaussians, fitted to the losses scaled to [0, 1]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    spread = losses.max() - losses.min()
    if not spread > 0:  # equal losses tell nothing: believe the labels
        return torch.ones_like(losses)
    scaled = ((losses - losses.min()) / spread).double().numpy()[:, None]
    mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten iterations are what the paper's code takes
        mixture.fit(scaled)
    lower = int(mixture.means_[:, 0].argmin())
    return torch.from_numpy(mixture.predict_proba(scaled)[:, lower]).to(losses)
