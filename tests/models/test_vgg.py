"""VGG has the authors' stages, pooled for as long as there is something to pool."""

import pytest
import torch
from torch import nn

from karat.models import VGG, parameter_count


@pytest.mark.parametrize(("depth", "expected"), [(11, 9_228_362), (13, 9_413_066), (16, 14_724_042), (19, 20_035_018)])
def test_parameter_count(depth: int, expected: int) -> None:
    """Count by hand; a convolution from a to b channels has 9ab weights, its BatchNorm 2b parameters.

    VGG-13: 9·(3·64 + 64² + 64·128 + 128² + 128·256 + 256² + 256·512 + 3·512²) = 9,402,048 weights,
    2·2·(64 + 128 + 256 + 512 + 512) = 5,888 of BatchNorm, 513·10 = 5,130 of the head.
    The others have fewer or more convolutions within a stage of b channels: each is 9b² + 2b.
    """
    thirteen = 9_402_048 + 5_888 + 5_130

    def inner(channels: int) -> int:
        return 9 * channels**2 + 2 * channels

    further = {
        11: -inner(64) - inner(128),
        13: 0,
        16: inner(256) + 2 * inner(512),
        19: 2 * (inner(256) + 2 * inner(512)),
    }
    assert thirteen + further[depth] == expected
    with torch.device("meta"):  # counting needs no numbers
        assert parameter_count(VGG(depth, in_channels=3, classes=10, image_size=32)) == expected


@pytest.mark.parametrize(
    ("size", "left"),
    [
        (1, [1]),
        (8, [8, 4, 2, 1]),
        (28, [28, 14, 7, 3, 1]),
        (32, [32, 16, 8, 4, 2, 1]),
        (96, [96, 48, 24, 12, 6, 3]),
    ],
)
def test_stages_halve_the_image_until_one_pixel_is_left(size: int, left: list[int]) -> None:
    x, sizes = torch.zeros(2, 1, size, size), [size]
    for layer in VGG(11, in_channels=1, classes=3, image_size=size).features:
        x = layer(x)
        if isinstance(layer, nn.MaxPool2d):
            sizes.append(x.shape[-1])
    assert sizes == left
