"""Views at prediction: their mean, in evaluation mode alone, in every place that predicts."""

from pathlib import Path

import pytest
import torch
from torch import nn

from karat.errors import UserError
from karat.inference.model import ModelDescription
from karat.methods.shared.last_layer import hidden
from karat.models import build_model
from karat.models.views import VIEWS, Views, with_views


def images():
    return torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("kind", "count"), [("mirrored", 2), ("shifted", 3), ("mirrored_and_shifted", 6)])
def test_prediction_is_the_mean_over_the_views(kind, count):
    torch.manual_seed(0)
    network = build_model("fast-2", (1, 8, 8), 3).eval()
    views = VIEWS[kind](images())
    assert len(views) == count
    assert all(view.shape == (4, 1, 8, 8) for view in views)
    expected = sum(network(view) for view in views) / count
    torch.testing.assert_close(Views(network, kind).eval()(images()), expected)


def test_training_sees_the_inputs_alone():
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    assert torch.equal(Views(network, "mirrored").train()(images()), network(images()))


def test_shifts_move_by_one_pixel_to_both_sides():
    _, up_left, down_right = VIEWS["shifted"](images())
    assert torch.equal(up_left[:, :, :-1, :-1], images()[:, :, 1:, 1:])
    assert torch.equal(down_right[:, :, 1:, 1:], images()[:, :, :-1, :-1])


@pytest.mark.parametrize("kind", VIEWS)
def test_the_last_layer_makes_the_mean_logits_of_the_mean_features(kind):
    """A linear layer's output at the mean of its inputs is the mean of its outputs: it can be replaced as it is."""
    torch.manual_seed(0)
    model = Views(build_model("fast-2", (1, 8, 8), 3), kind).eval()
    found = hidden(model, images())
    assert found.head_output is found.logits
    assert found.features.shape == (4, 8)
    torch.testing.assert_close(found.head(found.features), found.logits)


def test_a_model_that_is_built_again_has_its_views():
    described = ModelDescription(("a", "b"), "fast-2", 2, (1, 8, 8), None, "mirrored")
    again = ModelDescription.from_dict(described.to_dict(), Path()).build().eval()
    torch.testing.assert_close(again(images()), again(images().flip(3)))
    older = {name: value for name, value in described.to_dict().items() if name != "views"}
    assert ModelDescription.from_dict(older, Path()).views == "plain"


def test_plain_is_the_network_itself_and_others_are_refused():
    network = nn.Linear(2, 2)
    assert with_views(network, "plain") is network
    with pytest.raises(UserError, match="Did you mean 'mirrored'"):
        with_views(network, "mirorred")
