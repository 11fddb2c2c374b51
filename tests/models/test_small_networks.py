"""The networks for one processor core: their size, and that they can learn."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from karat.models import MLP, SmallResNet, parameter_count


@pytest.mark.parametrize(
    ("size", "left"),
    [(2, [2, 2, 2]), (8, [8, 4, 2]), (12, [12, 6, 3]), (17, [9, 5, 3]), (28, [14, 7, 4]), (32, [16, 8, 4])],
)
def test_small_resnet_halves_the_image_but_not_a_small_one_at_once(size: int, left: list[int]) -> None:
    x, sizes = torch.zeros(2, 16, size, size), []
    for block in SmallResNet(1, 10, image_size=size).blocks:
        x = block(x)
        sizes.append(x.shape[-1])
    assert sizes == left


def test_small_resnet_parameter_count() -> None:
    """Count by hand for 1 channel, 10 classes, 28x28, width 16.

    A block from a to b channels: 2a + 9ab + 2b + 9b² + ab (its shortcut changes the size).
    Stem 144; blocks 4,928 (16→16), 14,432 (16→32), 57,536 (32→64); head 2·64 + 65·10 = 778.
    """
    assert 144 + 4_928 + 14_432 + 57_536 + 778 == 77_818
    assert parameter_count(SmallResNet(1, 10, image_size=28)) == 77_818


def test_mlp_parameter_count() -> None:
    """By hand: 20·256 + 2·256, then 256² + 2·256, then 257·10; BatchNorm stands in for the hidden biases."""
    assert parameter_count(MLP(20, 10)) == 5_632 + 66_048 + 2_570


def test_mlp_of_depth_0_is_a_linear_classifier() -> None:
    assert parameter_count(MLP(20, 10, depth=0)) == 21 * 10


def test_mlp_dropout_is_active_in_training_only() -> None:
    torch.manual_seed(0)
    model, vectors = MLP(20, 3, dropout=0.5), torch.randn(4, 20)
    assert not torch.equal(model(vectors), model(vectors))
    model.eval()
    assert torch.equal(model(vectors), model(vectors))


@pytest.mark.parametrize(
    ("model_class", "arguments", "shape"), [(SmallResNet, (1, 10, 8), (1, 8, 8)), (MLP, (20, 10), (20,))]
)
def test_overfits_a_tiny_batch_of_random_labels(
    model_class: type[nn.Module], arguments: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """32 random examples with random labels can only be learnt by heart; chance is a loss of log 10 = 2.3."""
    torch.manual_seed(0)
    model = model_class(*arguments)
    examples, labels = torch.randn(32, *shape), torch.randint(10, (32,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(examples), labels).backward()
        optimizer.step()
    assert F.cross_entropy(model(examples), labels).item() < 0.05
    assert torch.equal(model(examples).argmax(dim=1), labels)
