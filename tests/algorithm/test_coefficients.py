"""The meta-gradient against double back-propagation, in float64, on the kinds of networks people have."""

import copy
from dataclasses import replace

import pytest
import torch
from double_backward import double_backward
from torch import nn

from karat.algorithm.coefficients import meta_coefficients, meta_gradient, normalized_weights
from karat.algorithm.muon import Muon
from karat.algorithm.network import Network
from karat.algorithm.settings import ALGORITHM_PRESETS, AlgorithmSettings

CLASSES, BATCH = 4, 12


class Residual(nn.Module):
    """A convolution network with BatchNorm and a skip connection."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.block = nn.Sequential(
            nn.Conv2d(6, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
        )
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        return self.head(torch.relu(x + self.block(x)).mean(dim=(2, 3)))


class Transformer(nn.Module):
    """Self-attention over the pixels of an image, with dropout inside the attention and the blocks."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x.flatten(2).transpose(1, 2))).mean(dim=1))


class Tied(nn.Module):
    """The same weight used twice, a frozen layer, and a layer that is never used."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(32, 32).requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.first(x.flatten(1)))
        return {"logits": self.head(torch.tanh(self.frozen(self.second(x)))), "other": x}


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def dropout_network():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(32, 24), nn.ReLU(), nn.Dropout(0.4), nn.Linear(24, 24), nn.BatchNorm1d(24),
        nn.GELU(), nn.Dropout(0.2), nn.Linear(24, CLASSES),
    )  # fmt: skip


MODELS = {
    "mlp": mlp,
    "batchnorm_resnet": Residual,
    "dropout": dropout_network,
    "transformer": Transformer,
    "tied_frozen_unused": Tied,
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4),
    "dampened": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "muon": lambda p: Muon(p, lr=0.1, momentum=0.6, weight_decay=5e-4),
}


def problem(model_name, optimizer_name, steps=3):
    """Return a float64 network with a live optimizer state, three views, labels and a trusted batch."""
    torch.manual_seed(1)
    module = MODELS[model_name]().double()
    logits_of = (lambda output: output["logits"]) if model_name == "tied_frozen_unused" else (lambda z: z)
    network = Network(module, logits_of)
    optimizer = OPTIMIZERS[optimizer_name]([p for p in module.parameters() if p.requires_grad])
    x = torch.randn(BATCH, 2, 4, 4, dtype=torch.float64)
    y = torch.randint(CLASSES, (BATCH,))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    views = [x, x + 0.3 * torch.randn_like(x), x + 0.5 * torch.randn_like(x)]
    given = nn.functional.one_hot(torch.randint(CLASSES, (BATCH,)), CLASSES).double()
    trusted = torch.randn(10, 2, 4, 4, dtype=torch.float64)
    trusted_targets = nn.functional.one_hot(torch.randint(CLASSES, (10,)), CLASSES).double()
    return network, optimizer, views, given, trusted, trusted_targets


def reference(network, optimizer, views, passes, given, trusted, targets, settings):
    """Run double back-propagation from the same random states, the trusted pass from the present one."""
    present = torch.get_rng_state()
    states = [forward.random_state for forward in passes]
    try:
        # The meta step's trusted pass draws its dropout masks from the present state. Put it there by running
        # the views from their recorded states, which end in it.
        return double_backward(network, optimizer, views, given, trusted, targets, settings, states)
    finally:
        torch.set_rng_state(present)


def relative_error(value, expected):
    return ((value - expected).norm() / expected.norm()).item()


SETTINGS = {
    **ALGORITHM_PRESETS,
    "normalized_without_flow": AlgorithmSettings(normalize_logits=True),
    "flow_with_look_ahead_rate": AlgorithmSettings(pseudo_label_gradient=True, look_ahead_rate=0.03),
}


@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
def test_equals_double_backward(model_name, optimizer_name):
    check_against_double_backward(model_name, optimizer_name, AlgorithmSettings())


@pytest.mark.parametrize("model_name", ["batchnorm_resnet", "transformer"])
@pytest.mark.parametrize("settings_name", SETTINGS)
def test_equals_double_backward_in_every_preset(model_name, settings_name):
    check_against_double_backward(model_name, "nesterov", SETTINGS[settings_name])


def test_equals_double_backward_before_the_first_step():
    """Without momentum buffers: SGD's first step takes the gradient itself as the buffer."""
    check_against_double_backward("mlp", "nesterov", AlgorithmSettings(), steps=0)
    check_against_double_backward("mlp", "adamw", AlgorithmSettings(), steps=0)
    check_against_double_backward("mlp", "muon", AlgorithmSettings(), steps=0)


def check_against_double_backward(model_name, optimizer_name, settings, steps=3):
    network, optimizer, views, given, trusted, targets = problem(model_name, optimizer_name, steps)
    passes = [network.forward_pass(view) for view in views]
    gradient = meta_gradient(network, optimizer, passes, given, trusted, targets, settings)
    weights, trust = reference(network, optimizer, views, passes, given, trusted, targets, settings)
    assert relative_error(gradient.weights, weights) <= 1e-8
    assert relative_error(gradient.label_trust, trust) <= 1e-8
    assert torch.equal(gradient.label_trust > 0, trust > 0)


# In float32 the step is too long to miss the kinks of a small ReLU network: 3% on this one.
@pytest.mark.parametrize(
    ("model_name", "dtype"),
    [(name, torch.float64) for name in MODELS]
    + [(name, torch.float32) for name in MODELS if name != "batchnorm_resnet"],
)
def test_finite_differences_agree(model_name, dtype):
    network, optimizer, views, given, trusted, targets = problem(model_name, "momentum")
    network.module.to(dtype)
    optimizer = OPTIMIZERS["momentum"]([p for p in network.module.parameters() if p.requires_grad])
    views, given, trusted, targets = (
        [v.to(dtype) for v in views],
        given.to(dtype),
        trusted.to(dtype),
        targets.to(dtype),
    )
    passes = [network.forward_pass(view) for view in views]
    exact, near = (
        meta_gradient(network, optimizer, passes, given, trusted, targets, AlgorithmSettings(derivative=derivative))
        for derivative in ("jvp", "finite_difference")
    )
    assert relative_error(near.weights, exact.weights) <= 1e-3
    assert relative_error(near.label_trust, exact.label_trust) <= 1e-3


@pytest.mark.parametrize("model_name", MODELS)
def test_leaves_no_trace(model_name):
    """Parameters, buffers (BatchNorm statistics), gradients, optimizer and random state stay untouched."""
    network, optimizer, views, given, trusted, targets = problem(model_name, "momentum")
    passes = [network.forward_pass(view) for view in views]
    module = copy.deepcopy(network.module.state_dict())
    state = copy.deepcopy(optimizer.state_dict())
    gradients = {n: None if p.grad is None else p.grad.clone() for n, p in network.module.named_parameters()}
    random = torch.get_rng_state()
    for derivative in ("jvp", "finite_difference"):
        settings = AlgorithmSettings(derivative=derivative, pseudo_label_gradient=True)
        meta_coefficients(network, optimizer, passes, given, trusted, targets, settings)
    assert torch.equal(torch.get_rng_state(), random)
    torch.testing.assert_close(network.module.state_dict(), module, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict(), state, rtol=0, atol=0)
    for name, parameter in network.module.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=0)
    passes[0].logits.sum().backward()  # the graph of the forward pass is still there


class Doubled(torch.autograd.Function):
    """An operator with a backward rule and no forward-mode rule."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class WithoutForwardMode(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(32, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(Doubled.apply(self.inner(x.flatten(1)))))


def test_falls_back_to_finite_differences_and_says_so_once(caplog):
    """A forward-mode rule that is missing costs exactness of 1e-3, not the run."""
    _, _, views, given, trusted, targets = problem("mlp", "sgd")
    network = Network(WithoutForwardMode().double())
    optimizer = OPTIMIZERS["momentum"](network.module.parameters())
    passes = [network.forward_pass(view) for view in views]
    with pytest.raises(NotImplementedError):
        meta_gradient(network, optimizer, passes, given, trusted, targets, AlgorithmSettings(derivative="jvp"))
    for _ in range(2):
        found = meta_gradient(network, optimizer, passes, given, trusted, targets, AlgorithmSettings())
    assert caplog.text.count("finite differences") == 1
    settings = AlgorithmSettings()
    weights, _ = reference(network, optimizer, views, passes, given, trusted, targets, settings)
    assert relative_error(found.weights, weights) <= 1e-3


def test_permuting_the_batch_permutes_the_coefficients():
    network, optimizer, views, given, trusted, targets = problem("batchnorm_resnet", "momentum")
    order = torch.randperm(BATCH)
    straight, permuted = (
        meta_coefficients(
            network, optimizer, [network.forward_pass(v[o]) for v in views], given[o], trusted, targets,
            AlgorithmSettings(),
        )
        for o in (torch.arange(BATCH), order)
    )  # fmt: skip
    for a, b in zip(straight, permuted, strict=True):
        torch.testing.assert_close(a[order], b)


def test_closed_form_quadratic():
    """One linear layer without bias, two classes, one noisy and one trusted example, plain SGD.

    z = W·x with W = 0, so p = (1/2, 1/2). With λ0 = 1 the target is y = (1, 0), the gradient of the noisy
    loss is (p − y)·xᵀ = (−1/2, 1/2)ᵀ·x and W' = W − α·ω·(p − y)·xᵀ. For ω = 1 (a batch of one), x = 1 and α = 2,
    W' = (1, −1)ᵀ. The trusted example x = 1 of class 0 has p' = softmax(1, −1) and
    ∂L^p/∂ω = (p' − y)·∂W'/∂ω = (p' − y)·(1, −1) = −2·p'_1 = −2·sigmoid(−2).
    """
    module = nn.Linear(1, 2, bias=False).double()
    nn.init.zeros_(module.weight)
    network = Network(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=2.0)
    x, y = torch.ones(1, 1, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    settings = replace(AlgorithmSettings(), initial_label_trust=1.0)
    passes = [network.forward_pass(x)] * 2
    gradient = meta_gradient(network, optimizer, passes, y, x, y, settings)
    expected = 2 * torch.sigmoid(torch.tensor([-2.0], dtype=torch.float64))
    torch.testing.assert_close(gradient.weights, expected)


def test_weights_are_a_distribution_or_all_zero():
    assert normalized_weights(torch.tensor([-1.0, -2.0])).tolist() == [0.0, 0.0]
    assert normalized_weights(torch.tensor([-1.0, 3.0, 1.0])).tolist() == [0.0, 0.75, 0.25]
    assert normalized_weights(torch.tensor([1.0]), epsilon=1.0).tolist() == [0.5]


def test_presets_differ_where_the_weights_start():
    """ω0 − ∇ and −∇: the first is 1/B more before it is clipped and normalised."""
    network, optimizer, views, given, trusted, targets = problem("mlp", "sgd")
    passes = [network.forward_pass(view) for view in views]
    arguments = (network, optimizer, passes, given, trusted, targets)
    gains = meta_gradient(*arguments, AlgorithmSettings()).weights
    for start, offset in (("zero", 0.0), ("initial", 1 / BATCH)):
        found = meta_coefficients(*arguments, AlgorithmSettings(weights_start=start)).weights
        expected = (gains + offset).clamp(min=0)
        torch.testing.assert_close(found, expected / expected.sum())
