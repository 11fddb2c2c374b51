import math

import pytest
import torch

from karat.data.noise.instance import corrupt_by_instance, flip_chances, truncated_normal
from karat.errors import UserError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Lazy:
    """Inputs that are decoded row by row, and count how many were held at once."""

    def __init__(self, inputs):
        self.inputs, self.most = inputs, 0

    @property
    def shape(self):
        return self.inputs.shape

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, rows):
        self.most = max(self.most, len(rows))
        return self.inputs[rows]


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 1.0])
def test_flip_rates_follow_the_truncated_normal(rate):
    """Mean of Normal(m, s) cut to [0, 1]: m + s (φ(a) − φ(b)) / (Φ(b) − Φ(a)) with a = −m/s, b = (1 − m)/s.

    Its deviation is at most s = 0.1, so the mean of 20,000 draws has a deviation of 0.0007; 6 of them are allowed.
    """
    low, high = -rate / 0.1, (1 - rate) / 0.1
    density = [math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) for z in (low, high)]
    below = [(1 + math.erf(z / math.sqrt(2))) / 2 for z in (low, high)]
    expected = rate + 0.1 * (density[0] - density[1]) / (below[1] - below[0])
    drawn = truncated_normal(rate, 20_000, generator())
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert drawn.mean().item() == pytest.approx(expected, abs=6 * 0.0007)


def test_chances_are_a_softmax_over_the_other_classes():
    """Scores log 1, log 3 of the classes other than 1 share q = 0.4 as 1 : 3, whatever the score of class 1."""
    scores = torch.tensor([[0.0, 50.0, math.log(3)]])
    expected = torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(flip_chances(scores, 1, torch.tensor([0.4], dtype=torch.float64)), expected)


def test_the_example_decides_where_its_label_goes():
    """Equal examples of one class have equal chances: nearly one class for one example, several for a whole class.

    The scores of 64 features have a deviation near 8, so the softmax is close to its maximum.
    """
    patterns = torch.randn(20, 64, generator=generator(1))
    inputs, labels = patterns.repeat(200, 1), torch.zeros(4000, dtype=torch.int64)
    noisy = corrupt_by_instance(inputs, labels, 6, 0.5, generator())
    wrong = noisy.given != 0
    largest = []
    for pattern in range(20):
        places = torch.arange(4000) % 20 == pattern
        largest.append(noisy.given[places & wrong].bincount().max().item() / (places & wrong).sum().item())
    assert sum(largest) / 20 > 0.8
    assert noisy.given[wrong].bincount(minlength=6).max() / wrong.sum() < 0.6


def test_image_files_are_read_batch_by_batch_and_give_the_same_labels():
    inputs = torch.rand(3000, 1, 3, 3, generator=generator(3))
    labels = torch.arange(3000) % 3
    lazy = Lazy(inputs)
    drawn = corrupt_by_instance(lazy, labels, 3, 0.3, generator())
    assert lazy.most == 2000  # the sample for mean and deviation
    assert torch.equal(drawn.given, corrupt_by_instance(inputs, labels, 3, 0.3, generator()).given)
    assert torch.equal(drawn.true, labels)


def test_scale_and_offset_of_images_do_not_matter():
    inputs, labels = torch.rand(500, 1, 3, 3, generator=generator(3)), torch.arange(500) % 3
    first, second = (corrupt_by_instance(scaled, labels, 3, 0.3, generator()) for scaled in (inputs, 4 * inputs + 8))
    torch.testing.assert_close(first.transition, second.transition, atol=1e-4, rtol=0)


def test_a_class_without_examples_keeps_its_row():
    noisy = corrupt_by_instance(torch.zeros(10, 2), torch.zeros(10, dtype=torch.int64), 3, 0.5, generator())
    assert noisy.transition[1:].tolist() == [[0, 1, 0], [0, 0, 1]]
    torch.testing.assert_close(noisy.transition.sum(dim=1), torch.ones(3, dtype=torch.float64))


def test_unusable_rate():
    with pytest.raises(UserError, match=r"The noise rate is 1.5: give a share from 0 to 1"):
        corrupt_by_instance(torch.zeros(2, 2), torch.tensor([0, 1]), 2, 1.5, generator())
