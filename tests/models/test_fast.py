"""The network `fast`: whitened patches that are read off the data once, an exact meta step, sizes from 8 to 64."""

import pytest
import torch
from double_backward import double_backward
from torch import nn

from karat.algorithm.coefficients import meta_gradient
from karat.algorithm.network import Network
from karat.algorithm.settings import AlgorithmSettings
from karat.errors import UserError
from karat.models import Fast, build_model, look_at_inputs
from karat.models.fast import Whitening
from karat.settings.config import OptimizerSettings
from karat.training.optimizers import make_optimizer


def test_whitened_patches_are_uncorrelated_and_of_variance_one():
    """The first half of the channels has the second moments of the identity, but for the 5e-4 that are added."""
    torch.manual_seed(0)
    images = torch.randn(200, 3, 9, 9)
    images[:, 1] += 0.8 * images[:, 0]  # channels and neighbours that go together
    images[:, :, 1:] += 0.5 * images[:, :, :-1].clone()
    layer = Whitening(3)
    layer.look_at(images)
    channels = layer(images)[:, :12].transpose(0, 1).flatten(1)
    torch.testing.assert_close(channels @ channels.T / channels.shape[1], torch.eye(12), rtol=0, atol=2e-2)
    assert torch.equal(layer.directions[12:], -layer.directions[:12])


def test_a_loaded_network_needs_no_data():
    torch.manual_seed(0)
    model, images = build_model("fast-2", (1, 8, 8), 3).eval(), torch.randn(20, 1, 8, 8)
    before = model(images)
    look_at_inputs(model, lambda: images)
    assert not torch.allclose(model(images), before)
    other = build_model("fast-2", (1, 8, 8), 3).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(images), model(images))


def test_other_networks_are_shown_nothing():
    look_at_inputs(nn.Linear(2, 2), lambda: pytest.fail("no layer asks for inputs"))


@pytest.mark.parametrize(("size", "left"), [(8, 3), (12, 5), (28, 3), (32, 3), (64, 7)])
def test_pooling_leaves_three_pixels_at_least(size, left):
    model = Fast(1, in_channels=1, classes=2, image_size=size)
    assert model.groups(model.whitening(torch.zeros(1, 1, size, size))).shape[2:] == (left, left)


def test_the_head_gives_the_logits_of_what_it_gets():
    """Methods that replace the last layer read its input and take its output for the logits."""
    model, seen = Fast(2, in_channels=1, classes=3, image_size=8), []
    model.head.register_forward_hook(lambda layer, inputs, output: seen.append(output))
    logits = model(torch.randn(2, 1, 8, 8))
    assert logits is seen[0]


@pytest.mark.parametrize("optimizer_name", ["sgd", "muon"])
def test_the_meta_step_equals_double_backward(optimizer_name):
    torch.manual_seed(0)
    images, labels = torch.randn(3, 6, 1, 8, 8, dtype=torch.float64), torch.randint(3, (3, 6))
    module = Fast(2, in_channels=1, classes=3, image_size=8)
    look_at_inputs(module, lambda: images[0].float())
    network = Network(module.double())
    optimizer = make_optimizer(module, OptimizerSettings(optimizer_name, rate=0.05))
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images[0]), labels[0]).backward()
        optimizer.step()
    views = list(images[:2])
    given, targets = (nn.functional.one_hot(labels[k], 3).double() for k in (1, 2))
    passes = [network.forward_pass(view) for view in views]
    settings = AlgorithmSettings()
    found = meta_gradient(network, optimizer, passes, given, images[2], targets, settings)
    states = [one.random_state for one in passes]
    weights, trust = double_backward(network, optimizer, views, given, images[2], targets, settings, states)
    torch.testing.assert_close(found.weights, weights, rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(found.label_trust, trust, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("width", "size", "sentence"), [(0, 8, "cannot be 0 wide"), (4, 7, "choose 'small'")])
def test_errors_say_the_remedy(width, size, sentence):
    with pytest.raises(UserError, match=sentence):
        Fast(width, in_channels=1, classes=2, image_size=size)
