"""RoG: covariance and subset, the discriminant by its formula, the replaced last layer."""

import copy

import pytest
import torch
from harness import CLASSES, COUNT, batch, learner, network, task
from safetensors.torch import load_model, save_model
from sklearn.covariance import ledoit_wolf
from torch import nn

from karat.errors import UserError
from karat.methods.rog import RoG, RoGSettings, concentrated, discriminant, generative_classifier, shrunk_covariance
from karat.methods.supervised import supervised


def test_shrunk_covariance_equals_scikit_learn():
    rows = torch.randn(12, 5, dtype=torch.float64) * torch.tensor([1, 2, 3, 1, 5.0])
    rows = rows - rows.mean(dim=0)
    expected, _ = ledoit_wolf(rows.numpy(), assume_centered=True)
    torch.testing.assert_close(shrunk_covariance(rows), torch.from_numpy(expected))


@pytest.mark.parametrize("count", [1, 3, 200])
def test_dead_features_leave_the_covariance_invertible(count):
    rows = torch.randn(count, 4, dtype=torch.float64)
    rows[:, 1:3] = 0
    for centred in (rows, torch.zeros_like(rows)):
        assert torch.linalg.inv(shrunk_covariance(centred)).isfinite().all()


def test_outliers_are_left_out():
    """60 points of N(0, I) and 40 of N(8, I): any half with points of both kinds is spread far more widely."""
    points = torch.randn(100, 3, dtype=torch.float64)
    points[60:] += 8
    kept = concentrated(points, 50)
    assert len(kept.unique()) == 50
    assert kept.max() < 60


def test_discriminant_is_the_formula():
    """With all examples kept: xᵀΣ⁻¹μ_c − ½·μ_cᵀΣ⁻¹μ_c + log π_c, π = 1/3 and 2/3, Σ from the rows centred by class."""
    labels = (torch.arange(60) % 3).clamp(max=1)
    features = torch.randn(60, 3, dtype=torch.float64) + 2 * labels[:, None]
    weight, bias = discriminant(features, labels, 2, kept=1.0)
    means = torch.stack([features[labels == c].mean(dim=0) for c in range(2)])
    precision = torch.linalg.inv(shrunk_covariance(features - means[labels]))
    for c, prior in enumerate((1 / 3, 2 / 3)):
        expected = features @ precision @ means[c] - means[c] @ precision @ means[c] / 2
        expected = expected + torch.tensor(prior, dtype=torch.float64).log()
        torch.testing.assert_close(features @ weight[c] + bias[c], expected)


def test_wrong_labels_do_not_move_the_border():
    """100 examples around 0 and 200 around 6; 50 of the latter are labelled 0, so each label has 150.

    Between two classes with equal priors the border crosses the line of the means at its middle. Plain means are
    (100·0 + 50·6)/150 = 2 and 6: border at 4. The densest half of class 0 lies around 0: border at 3. 3.6 is between.
    """
    features = torch.randn(300, 2, dtype=torch.float64)
    features[100:] += 6
    labels = (torch.arange(300) >= 150).long()
    point = torch.tensor([3.6, 3.6], dtype=torch.float64)
    for kept, expected in ((1.0, 0), (0.5, 1)):
        weight, bias = discriminant(features, labels, 2, kept)
        assert (weight @ point + bias).argmax() == expected


def test_a_class_without_examples_has_finite_logits():
    weight, bias = discriminant(torch.randn(20, 3).double(), torch.arange(20) % 2, 4)
    assert weight.isfinite().all()
    assert bias.isfinite().all()
    assert (bias[2:] < bias[:2].max()).all()


def test_the_last_layer_is_replaced_in_a_copy(tmp_path):
    """The features of the copy are the model's, its head is the discriminant; its saved weights fit the model."""
    data, model = task(), network()
    before = copy.deepcopy(model.state_dict())
    made = generative_classifier(model, data.noisy_inputs, data.given_labels, CLASSES)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert made.training == model.training

    inputs = data.noisy_inputs(torch.arange(COUNT))
    model.eval()
    with torch.no_grad():
        features = model[:3](inputs)
        weight, bias = discriminant(features, data.given_labels, CLASSES)
        torch.testing.assert_close(made.eval()(inputs), features @ weight.T + bias)
        save_model(made, str(tmp_path / "made.safetensors"))
        load_model(model, str(tmp_path / "made.safetensors"))
        assert torch.equal(model(inputs), made(inputs))


def test_a_head_without_bias_gets_one():
    data, model = task(), nn.Sequential(nn.Linear(6, CLASSES, bias=False)).double()
    made = generative_classifier(model, data.noisy_inputs, data.given_labels, CLASSES)
    assert made[0].bias.shape == (CLASSES,)
    assert model[0].bias is None


def test_a_network_that_goes_on_after_its_last_linear_layer_is_refused():
    data = task()
    with pytest.raises(UserError, match="goes on after it"):
        generative_classifier(
            nn.Sequential(network(), nn.Softmax(dim=1)), data.noisy_inputs, data.given_labels, CLASSES
        )


def test_the_method_trains_plainly_and_finishes_with_the_classifier():
    ours, plain, settings = learner(network()), learner(network()), RoGSettings(kept=0.75)
    method = RoG(task(), settings)
    method.step(ours, batch(), settings, torch.Generator())
    supervised(plain, batch(), None, torch.Generator())
    torch.testing.assert_close(ours.network.module.state_dict(), plain.network.module.state_dict(), rtol=0, atol=0)
    made, judgement = method.finish(ours.network.module)
    assert judgement is None
    expected = generative_classifier(
        ours.network.module, method.task.noisy_inputs, method.task.given_labels, CLASSES, 0.75
    )
    torch.testing.assert_close(made.state_dict(), expected.state_dict(), rtol=0, atol=0)


def test_no_examples_cannot_be_kept():
    with pytest.raises(UserError, match=r"methods.rog.kept is 0"):
        RoGSettings(kept=0)
