"""The cheaper rules give torch's own Jacobian-vector product, also where a recorded output cannot be used."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import nn

from karat.algorithm.directional import derivative_named, jvp
from karat.algorithm.network import Network


class Functional(nn.Module):
    """Linear layers called with keywords, shared inputs, and a BatchNorm of the raw input."""

    def __init__(self):
        super().__init__()
        self.norm, self.one, self.two = nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(x)
        return F.linear(F.linear(x, self.one.weight) + F.linear(input=x, weight=self.one.weight), self.two.weight)


def frozen_weight():
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    module[0].weight.requires_grad_(False)
    return module


def frozen_norm():
    module = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    module[1].weight.requires_grad_(False)
    return module


def image(*layers):
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), *layers, nn.Flatten(), nn.LazyLinear(3))


MODELS = {
    "batch_norm": lambda: image(nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU()),
    "in_place_after_convolution": lambda: image(nn.Conv2d(1, 4, 2), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 1)),
    "no_scale_and_shift": lambda: image(nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4, affine=False), nn.Tanh()),
    "grouped_strided": lambda: image(nn.Conv2d(1, 4, 2, padding=1, stride=2), nn.Conv2d(4, 4, 1, groups=2)),
    "one_dimension": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 4, 2), nn.BatchNorm1d(4), nn.Flatten(), nn.LazyLinear(3)
    ),
    "functional": Functional,
    "frozen_weight": frozen_weight,
    "frozen_norm": frozen_norm,
    "evaluation_mode": lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval(),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_torch(name):
    inputs = torch.randn(9, 6, dtype=torch.float64) + 2
    module = MODELS[name]().double()
    module(inputs)  # gives lazy layers their shape
    network = Network(module)
    forward = network.forward_pass(inputs)
    parameters = network.trainable()
    direction = {key: torch.randn_like(p) for key, p in parameters.items()}
    derivative_named("jvp")  # loads torch's rules, which warn
    with torch.no_grad(), forward_ad.dual_level():
        duals = {key: forward_ad.make_dual(p.detach(), direction[key]) for key, p in parameters.items()}
        expected = forward_ad.unpack_dual(network.at(duals, inputs)).tangent
    torch.testing.assert_close(jvp(network, forward, parameters, direction), expected, rtol=1e-10, atol=1e-12)


def test_recorded_outputs_are_used_while_they_are_there_and_unchanged():
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    with torch.no_grad():
        forward = Network(module).forward_pass(torch.randn(4, 6))
    found = [output.value() for output in forward.linear_outputs]
    assert found[0] is None  # nothing keeps it: tanh saves its result
    assert torch.equal(found[1], forward.logits)
    forward.logits.add_(1)
    assert forward.linear_outputs[1].value() is None
