"""DenseNet-BC has the authors' size and wiring."""

import pytest
import torch

from karat.models import DenseNet, parameter_count
from karat.models.densenet import DenseLayer


@pytest.mark.parametrize(("depth", "expected"), [(22, 71_686), (40, 176_122), (100, 769_162)])
def test_parameter_count(depth: int, expected: int) -> None:
    """Count by hand; BatchNorm has 2 parameters a channel, growth is 12.

    A layer with c channels before it: 2c + 48c + 2·48 + 9·48·12 = 50c + 5,280; c grows by 12 with each.
    A transition: 2c + c²/2. Stem: 27·24. Head: 2c + (c + 1)·10.
    DenseNet-BC-100 has 769,162, the 0.8M of its authors' table.
    """
    count, channels = 27 * 24, 24
    for block in range(3):
        if block > 0:
            count += 2 * channels + channels * (channels // 2)
            channels //= 2
        for _ in range((depth - 4) // 6):
            count += 50 * channels + 5_280
            channels += 12
    count += 2 * channels + (channels + 1) * 10
    assert count == expected
    assert parameter_count(DenseNet(depth, in_channels=3, classes=10, image_size=32)) == expected


def test_a_layer_keeps_its_input_and_appends_twelve_channels() -> None:
    x = torch.randn(2, 30, 4, 4)
    y = DenseLayer(30)(x)
    assert y.shape == (2, 42, 4, 4)
    assert torch.equal(y[:, :30], x)


@pytest.mark.parametrize(
    ("size", "after_stem", "left"), [(1, 1, 1), (3, 3, 1), (32, 32, 8), (64, 64, 16), (65, 17, 4), (224, 56, 14)]
)
def test_the_stem_follows_the_images(size: int, after_stem: int, left: int) -> None:
    """Above 64 pixels the stem quarters the image; each of the two transitions halves what is left, down to 1."""
    model = DenseNet(10, in_channels=1, classes=3, image_size=size)
    x = model.stem(torch.zeros(2, 1, size, size))
    assert x.shape == (2, 24, after_stem, after_stem)
    assert model.blocks(x).shape[-2:] == (left, left)
