"""A meta step of the last layers: double back-propagation of their parameters alone, without the first layers' work."""

import pytest
import torch
import torch.nn.functional as F
from double_backward import double_backward
from torch import nn
from torch.overrides import TorchFunctionMode

from karat.algorithm.coefficients import influence_on_trusted, meta_gradient
from karat.algorithm.directional import finite_difference, jvp
from karat.algorithm.muon import Muon
from karat.algorithm.network import Network
from karat.algorithm.settings import ALGORITHM_PRESETS, AlgorithmSettings
from karat.errors import UserError
from karat.models import build_model

CLASSES, BATCH = 4, 12


class Projected(nn.Module):
    """Blocks whose shortcut is computed after their convolution: what that returned is gone when the pass is over."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6)
        self.convolution, self.shortcut = nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 1)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        x = self.convolution(x) + self.shortcut(x)
        pooled = x.amax(dim=(2, 3))
        return {"logits": self.head(pooled), "pooled": pooled}


class Transformer(nn.Module):
    """Attention with dropout, a bias that no layer holds, and several results of one call."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Linear(2, 8), nn.Parameter(torch.randn(8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = self.embed(x.flatten(2).transpose(1, 2)) + self.place
        first, second = self.encoder(x).mean(dim=1).chunk(2, dim=1)
        return {"logits": self.head(first * second) if x.shape[1] > 1 else None}


class Dropout(nn.Module):
    """Dropout before and between the last layers, and weights that are tied."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(50, 16), nn.Linear(16, 16)
        self.tied, self.norm, self.head = nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES)
        self.tied.weight = self.second.weight

    def forward(self, x):
        x = F.dropout(torch.tanh(self.second(F.dropout(self.first(x.flatten(1)), 0.3))), 0.3)
        return {"logits": self.head(F.dropout(self.norm(self.tied(x)), 0.2))}


class Built(nn.Module):
    """A network of Karat."""

    def __init__(self, name):
        super().__init__()
        self.network = build_model(name, (2, 8, 8), CLASSES)

    def forward(self, x):
        return {"logits": self.network(F.pad(x, (1, 2, 1, 2)))}


MODELS = {
    "projected": Projected,
    "transformer": Transformer,
    "dropout": Dropout,
    "resnet": lambda: Built("resnet-11"),
    "fast": lambda: Built("fast-2"),
}


def problem(model, optimizer="momentum"):
    """Return a float64 network with a live optimizer, two views, labels and a trusted batch."""
    torch.manual_seed(1)
    network = Network(MODELS[model]().double(), lambda output: output["logits"])
    trained = [p for p in network.module.parameters() if p.requires_grad]
    optimizer = {
        "momentum": lambda: torch.optim.SGD(trained, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True),
        "adamw": lambda: torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1),
        "muon": lambda: Muon(trained, lr=0.1, momentum=0.6, weight_decay=5e-4),
    }[optimizer]()
    x, trusted = torch.randn(BATCH, 2, 5, 5).double(), torch.randn(10, 2, 5, 5).double()
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(network(x), torch.randint(CLASSES, (BATCH,))).backward()
        optimizer.step()
    given, verified = (F.one_hot(torch.randint(CLASSES, (n,)), CLASSES).double() for n in (BATCH, 10))
    return network, optimizer, [x, x + 0.3 * torch.randn_like(x)], given, trusted, verified


class Counting(TorchFunctionMode):
    """Count the linear layers that are really computed."""

    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += function in (F.linear, F.conv2d)
        return function(*args, **(kwargs or {}))


def error(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def check(model, optimizer, layers, settings):
    network, optimizer, views, given, trusted, verified = problem(model, optimizer)
    passes = [network.forward_pass(view, layers) for view in views]
    found = meta_gradient(network, optimizer, passes, given, trusted, verified, settings)
    names, states = network.moved_by(passes[0]).keys(), [forward.random_state for forward in passes]
    weights, trust = double_backward(network, optimizer, views, given, trusted, verified, settings, states, names)
    assert error(found.weights, weights) <= 1e-8
    assert error(found.label_trust, trust) <= 1e-8
    everything, _ = double_backward(network, optimizer, views, given, trusted, verified, settings, states)
    assert (names == network.trainable().keys()) == (error(found.weights, everything) <= 1e-8)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layers", [1, 2, 3, 99])
def test_equals_double_backward_of_these_layers(model, layers):
    """And differs from that of all parameters, unless they are all."""
    check(model, "momentum", layers, AlgorithmSettings())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("model", ["dropout", "fast"])
def test_equals_double_backward_with_other_optimizers_and_through_pseudo_labels(model, optimizer):
    check(model, optimizer, 2, ALGORITHM_PRESETS["released"])


@pytest.mark.parametrize(
    ("model", "layers", "names"),
    [
        ("projected", 1, {"head.weight", "head.bias"}),
        ("projected", 2, {"shortcut.weight", "shortcut.bias", "head.weight", "head.bias"}),
        # the weight of `tied` is used first in `second`, and belongs there
        ("dropout", 1, {"head.weight", "head.bias"}),
        ("dropout", 2, {"second.weight", "second.bias", "tied.bias", "norm.weight", "norm.bias", "head.weight",
                        "head.bias"}),
    ],
)  # fmt: skip
def test_a_parameter_belongs_to_the_layer_that_uses_it_first(model, layers, names):
    network, _, views, *_ = problem(model)
    assert network.moved_by(network.forward_pass(views[0], layers)).keys() == names


@pytest.mark.parametrize(
    ("model", "layers", "computed"),
    # A call for the tangent of each weight, and one for that of its input but for the first. `dropout`, 2: three layers
    # use the weights, and the output of the first is gone, because tanh keeps its own.
    [("projected", 1, 1), ("dropout", 1, 1), ("dropout", 2, 6), ("resnet", 1, 1), ("fast", 1, 1), ("fast", 2, 3)],
)
def test_the_first_layers_are_not_computed_again(model, layers, computed):
    network, _, views, *_ = problem(model)
    forward = network.forward_pass(views[0], layers)
    parameters = network.moved_by(forward)
    direction = {name: torch.randn_like(p) for name, p in parameters.items()}
    with Counting() as counting:
        resumed = jvp(network, forward, parameters, direction)
    assert counting.count == computed
    whole = jvp(network, forward._replace(last_layers=None), parameters, direction)
    torch.testing.assert_close(resumed, whole, rtol=1e-12, atol=1e-14)
    near = finite_difference(network, forward, parameters, direction)
    torch.testing.assert_close(near, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spoil", ["changed", "gone"])
def test_results_that_are_changed_or_gone_are_computed_again(spoil):
    seen = []
    torch.manual_seed(0)
    network = Network(Projected().double(), lambda output: (seen.append(output["pooled"]), output["logits"])[1])
    inputs = torch.randn(BATCH, 2, 5, 5).double()
    with torch.set_grad_enabled(spoil == "changed"):
        forward = network.forward_pass(inputs, 1)
    parameters = network.moved_by(forward)
    direction = {name: torch.randn_like(p) for name, p in parameters.items()}
    expected = seen[0].detach() @ direction["head.weight"].T + direction["head.bias"]
    seen[0].detach().add_(1)  # in place: the version counts it
    if spoil == "gone":
        seen.clear()
    state = torch.get_rng_state()
    torch.testing.assert_close(jvp(network, forward, parameters, direction), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_learning_to_reweight_of_the_last_layer_by_hand():
    """At ω0 = 0: (softmax(z) − y)·(V·h + v), with V, v the trusted gradient of the head and h what it sees."""
    network, _, views, given, trusted, verified = problem("fast")
    forward = network.forward_pass(views[0], 1)
    gains = influence_on_trusted(network, forward, given, trusted, verified, jvp)
    seen = []
    hook = network.module.network.head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    network(views[0])
    loss = F.cross_entropy(network(trusted), verified)
    hook.remove()
    head = network.module.network.head
    weight, bias = torch.autograd.grad(loss, [head.weight, head.bias])
    expected = ((forward.logits.softmax(1) - given) * (seen[0] @ weight.T + bias)).sum(1)
    torch.testing.assert_close(gains, expected.detach(), rtol=1e-8, atol=1e-12)


def test_a_network_without_layers_is_refused():
    network = Network(nn.BatchNorm1d(CLASSES))
    with pytest.raises(UserError, match="meta_layers cannot be used with this network"):
        network.forward_pass(torch.randn(3, CLASSES), 1)
