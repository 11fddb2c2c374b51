"""The meta step runs through every kind of network of the paper, by the exact Jacobian-vector product."""

import pytest
import torch
from torch.nn.functional import one_hot

from karat.algorithm.coefficients import meta_coefficients
from karat.algorithm.network import Network
from karat.algorithm.settings import AlgorithmSettings
from karat.models import build_model, parameter_count

SIZES = {
    "vgg-13": ((3, 32, 32), 9_413_066),
    "densenet-100": ((3, 32, 32), 769_162),
    "resnet-50": ((3, 64, 64), 23_520_842),
    "timm:test_vit": ((1, 32, 32), None),
}


@pytest.mark.parametrize("name", SIZES)
def test_data_coefficients_are_finite(name: str) -> None:
    """Two examples; `derivative="jvp"` would raise where an operator has no forward-mode rule.

    ResNet-50 has 25,557,032 parameters for ImageNet. With 10 classes 990·2,049 are gone, and with a stem of 3x3 instead
    of 7x7 another 40·3·64: 23,520,842.
    """
    shape, parameters = SIZES[name]
    module = build_model(name, shape, classes=10)
    assert parameters is None or parameter_count(module) == parameters
    network = Network(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    images, trusted = torch.randn(2, *shape), torch.randn(2, *shape)
    views = [network.forward_pass(images), network.forward_pass(images.flip(-1))]
    given, targets = one_hot(torch.tensor([0, 1]), 10).float(), one_hot(torch.tensor([2, 1]), 10).float()
    found = meta_coefficients(
        network, optimizer, views, given, trusted, targets, AlgorithmSettings(derivative="jvp", weights_start="initial")
    )
    assert all(values.isfinite().all() for values in found)
    assert found.class_scores.abs().max() > 0
    assert found.weights.sum() == pytest.approx(1, abs=1e-5) or not found.weights.any()
