"""ResNet v2 has the size and wiring of keras-team's `cifar10_resnet.py`."""

import pytest
import torch

from karat.models import ResNetV2, parameter_count


@pytest.mark.parametrize(("depth", "expected"), [(11, 297_418), (29, 843_786)])
def test_parameter_count(depth: int, expected: int) -> None:
    """Count by hand; a convolution has k²·a·b weights and b biases, BatchNorm 2 parameters a channel.

    A block with input a, inner m and output b channels:
        2a (BatchNorm, but for the very first block) + (am + m) + 2m + (9m² + m) + 2m + (mb + b),
        and (ab + b) for the shortcut of a stage's first block.
    Stages (m, b): (16, 64), (64, 128), (128, 256), of n = (depth - 2)/9 blocks; a is 16, then the last b.
    Stem: 27·16 + 16 + 2·16. Head: 2·256 + 257·10.
    Depth 29, stage by stage: 480 + 14,112 + 166,144 + 659,968 + 3,082 = 843,786, the 0.84M of the paper.
    """
    count = 480
    before = 16
    for stage, (inner, after) in enumerate(((16, 64), (64, 128), (128, 256))):
        for block in range((depth - 2) // 9):
            count += 0 if stage == block == 0 else 2 * before
            count += before * inner + 9 * inner**2 + inner * after + 6 * inner + after
            count += before * after + after if block == 0 else 0
            before = after
    count += 512 + 2570
    assert count == expected
    assert parameter_count(ResNetV2(depth, in_channels=3, classes=10)) == expected


def test_only_the_first_block_of_a_stage_projects_and_the_very_first_is_not_activated_twice() -> None:
    blocks = list(ResNetV2(20, in_channels=3, classes=10).blocks)
    assert [block.shortcut is not None for block in blocks] == [True, False] * 3
    assert [block.norm1 is not None for block in blocks] == [False] + [True] * 5


def test_later_stages_halve_the_image() -> None:
    model = ResNetV2(11, in_channels=3, classes=10)
    x, shapes = torch.zeros(2, 16, 32, 32), []
    for block in model.blocks:
        x = block(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(64, 32, 32), (128, 16, 16), (256, 8, 8)]
