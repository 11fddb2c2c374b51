"""What the agreement of predictions and given labels says about the noise."""

import math


def noise_rate_from_agreement(agreement: float, classes: int) -> float:
    """Solve `a = (1−ε)² + ε²/(c−1)` for the smaller ε: how often a network that learned the noise repeats it elsewhere.

    The right side is never below 1/c, where ε = (c−1)/c; a smaller agreement gives that.

    >>> round(noise_rate_from_agreement(0.6**2 + 0.4**2 / 9, classes=10), 6)
    0.4
    """
    curvature = classes / (classes - 1)
    return (1 - math.sqrt(max(0.0, 1 - curvature * (1 - agreement)))) / curvature


def removed_per_selected(noise_rate: float) -> float:
    """Return how many candidates are removed for each that is selected: ε/(1−ε), but at most 2."""
    return min(2.0, noise_rate / (1 - noise_rate))


def noise_among_selected(noise_rate: float, classes: int) -> float:
    """Return `ε²/(ε² + (c−1)(1−ε)²)`: the share of wrong labels where given label and prediction agree.

    >>> noise_among_selected(0.5, classes=10)
    0.1
    """
    if noise_rate < 0:
        return 0.0
    wrong, right = noise_rate**2, (classes - 1) * (1 - noise_rate) ** 2
    return wrong / (wrong + right)


def noise_rate_from_accuracy(agreement: float, accuracy: float, classes: int) -> float:
    """Solve `a = p·(1−ε) + (1−p)·ε/(c−1)` for ε: a model that is right with probability p, whatever the given label.

    Wrong predictions and wrong labels are taken to be spread evenly; at chance level nothing is known, and ε is 0.

    >>> round(noise_rate_from_accuracy(agreement=0.8 * 0.6 + 0.2 * 0.4 / 9, accuracy=0.8, classes=10), 6)
    0.4
    """
    by_chance = (1 - accuracy) / (classes - 1)
    if accuracy <= by_chance:
        return 0.0
    return min(max((accuracy - agreement) / (accuracy - by_chance), 0.0), 1 - 1 / classes)
