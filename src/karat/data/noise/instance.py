"""Instance-dependent label noise: what an example looks like decides how and how often it is mislabelled."""

import torch
from torch import Tensor

from karat.data.images import Inputs
from karat.data.modality import IMAGES, modality_of
from karat.data.noise.labels import NoisyLabels, check_labels
from karat.noise_matrix import check_rate

_SPREAD = 0.1  # standard deviation of the flip rates (Xia et al. 2020)
_SAMPLE = 2_000  # examples that the channels' mean and deviation are taken from; image files are decoded for it
_BATCH = 500


def corrupt_by_instance(
    inputs: Inputs, labels: Tensor, classes: int, rate: float, generator: torch.Generator
) -> NoisyLabels:
    """Draw each given label from a distribution of its own (Algorithm 2 of Xia et al. 2020).

    Example x of class y flips with q ~ Normal(rate, 0.1) cut to [0, 1], to another class k with probability
    q · softmax_{k ≠ y}(x W_y), where W_y is one standard normal matrix (features × classes) for each class.
    The transition asked for is the mean of these distributions over each class.

    >>> inputs, labels = torch.randn(4000, 5), torch.arange(4000) % 4
    >>> noisy = corrupt_by_instance(inputs, labels, 4, 0.4, torch.Generator().manual_seed(0))
    >>> round(noisy.rate, 1), bool((noisy.transition - noisy.realised_transition).abs().max() < 0.05)
    (0.4, True)
    """
    check_rate(classes, rate)
    check_labels(labels, classes)
    true = labels.long()
    flip_rates = truncated_normal(rate, len(true), generator)
    shift, scale = _standardisation(inputs)
    features = inputs.shape[1:].numel()
    given = true.clone()
    transition = torch.eye(classes, dtype=torch.float64)  # a class without examples keeps its label
    for label in range(classes):  # class by class: all matrices at once would be features × classes² numbers
        projection = torch.randn(features, classes, generator=generator)
        members = (true == label).nonzero().squeeze(1)
        total = torch.zeros(classes, dtype=torch.float64)
        for rows in members.split(_BATCH):
            flat = ((inputs[rows] - shift) * scale).flatten(1)
            chances = flip_chances(flat @ projection, label, flip_rates[rows])
            given[rows] = torch.multinomial(chances, 1, generator=generator).squeeze(1)
            total += chances.sum(dim=0)
        if len(members):
            transition[label] = total / total.sum()
    return NoisyLabels(given, true, classes, transition)


def flip_chances(scores: Tensor, label: int, flip_rates: Tensor) -> Tensor:
    """Return the chances of each given label for examples of one class: 1 − q of the true one, the rest by softmax.

    >>> flip_chances(torch.zeros(1, 3), 0, torch.tensor([0.5])).tolist()
    [[0.5, 0.25, 0.25]]
    """
    others = scores.double()
    others[:, label] = -torch.inf
    chances = flip_rates[:, None].double() * others.softmax(dim=1)
    chances[:, label] = 1 - flip_rates.double()
    return chances


def truncated_normal(mean: float, count: int, generator: torch.Generator) -> Tensor:
    """Draw from Normal(mean, 0.1) cut to [0, 1], by the inverse of its distribution function."""
    low, high = torch.special.ndtr((torch.tensor([0.0, 1.0], dtype=torch.float64) - mean) / _SPREAD)
    share = torch.rand(count, generator=generator, dtype=torch.float64)
    return (mean + _SPREAD * torch.special.ndtri(low + (high - low) * share)).clamp(0, 1)


def _standardisation(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return what to subtract from images and multiply them by, channel by channel; vectors are standardised."""
    if modality_of(tuple(inputs.shape[1:])) is not IMAGES:
        return torch.zeros(()), torch.ones(())
    evenly = torch.linspace(0, len(inputs) - 1, min(_SAMPLE, len(inputs))).long()
    sample = inputs[evenly]
    deviation = sample.std(dim=(0, 2, 3), keepdim=True)
    return sample.mean(dim=(0, 2, 3), keepdim=True), 1 / deviation.clamp(min=1e-6)
