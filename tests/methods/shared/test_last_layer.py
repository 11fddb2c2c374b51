"""Hidden features: the input of the last linear layer of any network."""

import pytest
import torch
from harness import COUNT, learner, network, task
from torch import nn

from karat.algorithm.network import Network
from karat.errors import UserError
from karat.methods.shared.last_layer import features_and_logits, features_at
from karat.models import MLP, SmallResNet


@pytest.mark.parametrize(
    ("model", "shape"), [(MLP(20, 3, width=12), (20,)), (SmallResNet(1, 3, image_size=8, width=4), (1, 8, 8))]
)
def test_the_head_maps_the_features_to_the_logits(model, shape):
    """By definition: logits = head(features); both models call their last layer `head`."""
    features, logits = features_and_logits(model, torch.randn(5, *shape))
    torch.testing.assert_close(model.head(features), logits, rtol=0, atol=0)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_linear_layer_that_is_not_called_does_not_count():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 2)
            self.unused = nn.Linear(9, 2)

        def forward(self, inputs):
            return {"logits": self.head(inputs)}

    inputs = torch.randn(4, 3)
    features, logits = features_and_logits(Network(Auxiliary(), lambda output: output["logits"]), inputs)
    assert torch.equal(features, inputs)
    assert logits.shape == (4, 2)


def test_gradients_flow_through_the_features():
    ours = learner(network())
    features, _ = features_and_logits(ours, torch.randn(4, 6, dtype=torch.float64))
    features.sum().backward()
    assert ours.network.module[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("pieces", [2, 5])
def test_a_pass_in_pieces_gives_features_and_their_slope_as_a_whole_one_does(pieces):
    """Where BatchNorm keeps its statistics, features, logits and gradients are those of the whole pass."""
    model, inputs, slopes = MLP(6, 3, width=5).double().eval(), torch.randn(10, 6).double(), []
    for asked in (None, pieces):
        found = features_and_logits(Network(model, pieces=asked), inputs)
        torch.testing.assert_close(found[1], model.head(found[0]))
        model.zero_grad()
        sum((part**2).sum() for part in found).backward()
        slopes.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.testing.assert_close(*slopes)


def test_a_network_without_a_linear_layer_is_refused_and_left_alone():
    with pytest.raises(UserError, match=r"last nn.Linear"):
        features_and_logits(nn.Conv1d(1, 1, 1), torch.zeros(1, 1, 1))


def test_hooks_are_removed_after_an_error():
    module = network()
    with pytest.raises(RuntimeError):
        features_and_logits(module, torch.zeros(2, 7, dtype=torch.float64))
    assert not any(layer._forward_hooks for layer in module.modules())


def test_whole_sets_are_read_in_evaluation_mode():
    """Evaluation: ReLU(BatchNorm(linear)) with the running statistics, which stay as they are."""
    ours, data = learner(network()), task()
    module = ours.network.module
    before = {name: value.clone() for name, value in module.state_dict().items()}
    rows = torch.tensor([5, 1, 2])
    found = features_at(ours, data.noisy_inputs, rows, batch_size=2)
    trusted = features_at(ours, data.trusted_inputs, torch.arange(8), batch_size=3)
    assert module.training
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    body = module[:3].eval()
    torch.testing.assert_close(found, body(data.noisy_inputs(rows)).float())
    torch.testing.assert_close(trusted, body(data.trusted_inputs(torch.arange(8))).float())
    assert features_at(ours, data.noisy_inputs, torch.arange(COUNT)).shape == (COUNT, 16)
