"""Wide residual networks have the authors' size and order of operations."""

import pytest
import torch
from torch import nn

from karat.models import WideResNet, parameter_count


@pytest.mark.parametrize(
    ("depth", "width", "classes", "expected"),
    [(28, 10, 10, 36_479_194), (28, 10, 100, 36_536_884), (28, 2, 10, 1_467_610), (10, 1, 10, 77_850)],
)
def test_parameter_count(depth: int, width: int, classes: int, expected: int) -> None:
    """Count by hand; BatchNorm has 2 parameters a channel.

    A block from a to b channels: 2a + 9ab + 2b + 9b², and ab for its shortcut where the shape changes.
    Stem: 27·16. Stages: n = (depth - 4)/6 blocks of 16w, 32w, 64w channels. Head: 2·64w + (64w + 1)·classes.
    For WRN-28-10 this is 36,479,194, and 90·641 more for 100 classes, as in the authors' tables (36.5M).
    """
    count, before = 27 * 16, 16
    for channels in (16 * width, 32 * width, 64 * width):
        count += 2 * before + 9 * before * channels + 2 * channels + 9 * channels**2
        if before != channels:
            count += before * channels
        count += ((depth - 4) // 6 - 1) * (4 * channels + 18 * channels**2)
        before = channels
    count += 2 * before + (before + 1) * classes
    assert count == expected
    with torch.device("meta"):  # counting needs no numbers
        assert parameter_count(WideResNet(depth, width, in_channels=3, classes=classes)) == expected


def test_convolutions_start_with_he_variance_of_fan_out() -> None:
    """The variance is 2 / (9·channels out), here 2/576; of 36,864 draws it is within 2.2% (3 sigma)."""
    torch.manual_seed(0)
    model = WideResNet(10, 4, in_channels=3, classes=10)
    convolution = model.blocks[0].conv2
    assert isinstance(convolution, nn.Conv2d)
    assert convolution.weight.var().item() == pytest.approx(2 / 576, rel=0.022)


def test_dropout_is_active_in_training_only() -> None:
    torch.manual_seed(0)
    model = WideResNet(10, 1, in_channels=1, classes=3, dropout=0.5)
    images = torch.randn(4, 1, 8, 8)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))
