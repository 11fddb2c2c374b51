"""What features of images should be like: near for two views of one image, and for images that mean the same.

With h the features of all views of a batch, less their mean and of length 1, the chance that a view takes another one
for its twin is `softmax over j of h_i·h_j / θ`. It is wanted to take the other view of its own image with 1 − β, and
images that have the same class with β, each by how likely that is by what is known of both:

    t_ij = (1 − β)·[j is the other view of i] + β·w_i·w_j / Σ_k w_i·w_k,    loss = mean over i of −Σ_j t_ij·log softmax

The first part needs no label (Chen et al. 2020), the second is that of Khosla et al. (2020) with soft labels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

TINY = 1e-9


def contrast(features: Tensor, known: Tensor, temperature: float, by_class: float) -> Tensor:
    """Return how unlike the features of what should be alike are; all first views stand before all second ones.

    `known` are the classes' probabilities, one row an image.

    >>> alike, known = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.eye(2)
    >>> good, bad = (contrast(torch.cat([alike, twin]), known, 0.1, by_class=0.0) for twin in (alike, alike.flip(0)))
    >>> bool(good < 1e-6), round(bad.item(), 3)
    (True, 20.0)
    """
    count, views = len(known), len(features)
    directions = F.normalize(features - features.mean(dim=0).detach(), dim=1)
    itself = torch.eye(views, dtype=torch.bool, device=features.device)
    chances = (directions @ directions.T / temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1)
    twin = itself.roll(count, dims=0)
    both = known.repeat(views // count, 1).to(features)
    same = (both @ both.T).masked_fill(itself | twin, 0.0)
    wanted = (1 - by_class) * twin + by_class * same / same.sum(dim=1, keepdim=True).clamp(min=TINY)
    return -(wanted * chances.masked_fill(itself, 0.0)).sum(dim=1).mean()
