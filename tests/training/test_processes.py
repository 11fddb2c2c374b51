"""Several processes are one: the same coefficients, weights, memories and ledgers, whoever takes the steps."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from scipy.sparse import csr_matrix
from together import together
from torch import nn

from karat.algorithm.coefficients import influence_on_trusted, meta_gradient
from karat.algorithm.directional import finite_difference, jvp
from karat.algorithm.network import Network
from karat.algorithm.ranks import SharedModel
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import one_hot
from karat.data.text_rows import TextRows
from karat.methods import METHODS
from karat.methods.settings import MethodSettings
from karat.methods.shared.last_layer import features_and_logits
from karat.models import build_model
from karat.settings.config import Config, NoiseSettings, OptimizerSettings, TrainingSettings
from karat.training.fit import fit
from karat.training.random_states import random_states
from karat.training.tasks import task_of
from karat.training.trainer import Trainer

CLASSES = 4


class Everything(nn.Module):
    """Convolution, BatchNorm with and without a scale, dropout, stochastic depth, BatchNorm of vectors."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.shift = nn.BatchNorm2d(6, affine=False)
        self.hidden = nn.Linear(6, 8)
        self.vectors = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images):
        x = self.norm(self.convolution(images)).relu()
        if self.training:
            x = x + self.shift(x) * x.new_empty(len(x), 1, 1, 1).bernoulli_(0.7)
        return self.head(self.dropout(self.vectors(self.hidden(x.mean(dim=(2, 3))))).relu())


def compared(one, other, tolerance):
    """Return the first place where two nested states differ by more than a tolerance; None where there is none."""
    if isinstance(one, dict):
        found = [(key, compared(one[key], other[key], tolerance)) for key in one.keys() | other.keys()]
    elif isinstance(one, (list, tuple)):
        found = [(place, compared(*pair, tolerance)) for place, pair in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, torch.Tensor):
        return None if torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True) else (one, other)
    elif isinstance(one, float):
        return None if one == pytest.approx(other, rel=tolerance, abs=tolerance, nan_ok=True) else (one, other)
    else:
        return None if one == other else (one, other)
    return next(((key, difference) for key, difference in found if difference is not None), None)


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def coefficients(network_of, rows, trusted, pieces=None, layers=None):
    """Return what computes everything that a meta step needs, in training mode."""

    def work(ranks):
        torch.manual_seed(0)
        module = network_of().train()
        network = Network(module, ranks=ranks, pieces=pieces)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        inputs, trusted_inputs = torch.randn(rows, 3, 8, 8), torch.randn(trusted, 3, 8, 8)
        given = one_hot(torch.arange(rows) % CLASSES, CLASSES, like=inputs)
        verified = one_hot(torch.arange(trusted) % CLASSES, CLASSES, like=inputs)
        views = [network.forward_pass(view, layers) for view in (inputs, inputs.flip(3))]
        gradient = meta_gradient(
            network, optimizer, views, given, trusted_inputs, verified, AlgorithmSettings(pseudo_label_gradient=True)
        )
        gains = [
            influence_on_trusted(network, views[0], given, trusted_inputs, verified, derivative)
            for derivative in (jvp, finite_difference)
        ]
        torch.stack([view.logits.square().mean() for view in views]).sum().backward()
        network.add_up_gradients()
        features, logits = features_and_logits(network, inputs)
        gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
        return {"meta": tuple(gradient), "gains": gains[0], "features": features, "logits": logits.detach(),
                "gradients": gradients, "buffers": dict(module.named_buffers()),
                "random": torch.get_rng_state()}, gains[1]  # fmt: skip

    return work


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize(
    ("network_of", "pieces", "layers"),
    [
        (Everything, None, None),
        (lambda: build_model("fast-2", (3, 8, 8), CLASSES), None, None),
        (Everything, 2, None),
        (Everything, None, 1),
        (Everything, None, 2),
        (Everything, 2, 2),
    ],
)
def test_coefficients_gradients_and_statistics_are_those_of_one_process(processes, network_of, pieces, layers, float64):
    """In float64 to 1e-8, with parts of unequal size; finite differences have fewer digits."""
    work = coefficients(network_of, 11, 7, pieces, layers)
    [(expected, by_difference)] = together(1, work)
    for found, difference in together(processes, work):
        assert compared(found, expected, 1e-8) is None
        torch.testing.assert_close(difference, by_difference, rtol=1e-4, atol=1e-4)


def test_fewer_rows_than_processes_are_computed_by_all(float64):
    work = coefficients(lambda: build_model("fast-2", (3, 8, 8), CLASSES), rows=2, trusted=2)
    [(expected, _)] = together(1, work)
    for found, _ in together(3, work):
        assert compared(found, expected, 1e-8) is None


def sparse_passes(ranks):
    """Return what a linear model says of sparse rows, as texts are."""
    torch.manual_seed(0)
    model, rows = nn.Linear(4, 2), torch.eye(4)
    sparse = TextRows(csr_matrix(rows.numpy()), None, wide=True)
    with torch.no_grad():
        return SharedModel(model, ranks)(sparse[:]), model(rows)


def test_sparse_rows_are_passed_by_every_process():
    for found, expected in together(2, sparse_passes):
        torch.testing.assert_close(found, expected)


def test_own_statistics_are_those_of_the_rows_of_a_process(float64):
    """As if copies of the network ran a part each: the same logits and Jacobian-vector products, gradients that are the
    sum of theirs, and running statistics that are the mean of theirs. Statistics may move before the way back."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, CLASSES))
    inputs, direction = torch.randn(8, 3, 8, 8), {name: torch.randn_like(p) for name, p in module.named_parameters()}

    def work(ranks):
        network = Network(deepcopy(module).train(), ranks=ranks, own_statistics=True)
        forward = network.forward_pass(inputs)
        slope = jvp(network, forward, network.trainable(), direction)
        statistics = {name: one.clone() for name, one in network.module.named_buffers()}
        network(inputs + 1)
        forward.logits.square().mean().backward()
        network.add_up_gradients()
        gradients = {name: p.grad for name, p in network.module.named_parameters()}
        return forward.logits.detach(), slope, gradients, statistics, dict(network.module.named_buffers())

    copies = [Network(deepcopy(module).train()) for _ in range(2)]
    passes = [copy.forward_pass(part) for copy, part in zip(copies, inputs.split(4), strict=True)]
    slopes = [jvp(copy, one, copy.trainable(), direction) for copy, one in zip(copies, passes, strict=True)]
    logits = torch.cat([one.logits for one in passes])
    logits.square().mean().backward()
    both = [dict(copy.module.named_parameters()) for copy in copies]
    gradients = {name: sum(own[name].grad for own in both) for name in direction}
    buffers = [dict(copy.module.named_buffers()) for copy in copies]
    first, second = together(2, work)
    assert compared(first, second, 0.0) is None, "processes differ among themselves"
    assert compared(first[:3], (logits.detach(), torch.cat(slopes), gradients), 1e-8) is None
    for name in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(first[3][name], (buffers[0][name] + buffers[1][name]) / 2)


@pytest.mark.parametrize("method", ["ieg", "karat"])
def test_a_run_with_own_statistics_is_alike_in_all_processes(method):
    """And another one than with shared statistics."""
    settings = config(method, steps=6, dataset="digits")
    own = replace(settings, training=replace(settings.training, batch_norm="own"))
    settings, own = (replace(one, model="fast-2") for one in (settings, own))
    shared, _ = together(2, run(settings))
    first, second = together(2, run(own))
    assert compared(first, {**first, **second}, 0.0) is None
    assert compared(first["model"], shared["model"], 1e-6) is not None


class InFloat64(nn.Module):
    """A network that computes in float64 whatever it is given."""

    def __init__(self, *how):
        super().__init__()
        self.network = build_model(*how).double()

    def forward(self, inputs):
        return self.network(inputs.double())


class TrainerInFloat64(Trainer):
    """A trainer whose steps compute in float64."""

    def _next_batch(self, progress):
        batch = super()._next_batch(progress)
        return batch._replace(noisy_inputs=batch.noisy_inputs.double(), trusted_inputs=batch.trusted_inputs.double())


def run(settings, steps=None, state=None):
    """Return what takes the steps of a run and returns everything that the next step would depend on."""

    def work(ranks):
        trainer = TrainerInFloat64(settings, task_of(settings), build=InFloat64, ranks=ranks)
        if state is not None:
            trainer.load_state_dict({**state, "random_states": {**random_states(), "torch": state["random_states"]}})
        fit(trainer, stop=lambda: trainer.steps_done == steps)
        return {**trainer.state_dict(), "random_states": torch.get_rng_state()}  # nothing draws from the others

    return work


def config(method, steps, batch_size=10, dataset="wine", **changes):
    return Config(
        method=method,
        model="mlp-8",
        data=replace(Config().data, name=dataset, trusted_per_class=4, limit=80),
        noise=NoiseSettings(kind="uniform", rate=0.4),
        training=TrainingSettings(steps=steps, batch_size=batch_size, device="cpu"),
        **changes,
    )


@pytest.mark.parametrize(("method", "processes"), [("karat", 2), ("ieg", 3)])
def test_weights_after_fifty_steps_are_those_of_one_process(method, processes):
    """To 1e-6 in float64: networks, averages, optimizer, memories, ledgers; images, batches of unequal parts."""
    settings = config(method, steps=50, dataset="digits")
    [expected] = together(1, run(settings))
    first, *others = together(processes, run(settings))
    assert compared(first, expected, 1e-6) is None
    for other in others:
        assert compared(other, {name: first[name] for name in other}, 0.0) is None, "processes differ among themselves"


def test_every_method_takes_the_steps_of_one_process():
    """All but karat, which has a test of its own; one pair of processes takes the steps of all, method by method."""
    methods = sorted(METHODS.keys() - {"karat"})
    all_of_them = [run(config(method, steps=14, optimizer=OptimizerSettings(rate=0.01))) for method in methods]
    [expected] = together(1, lambda ranks: [work(ranks) for work in all_of_them])
    first, _ = together(2, lambda ranks: [work(ranks) for work in all_of_them])
    for method, one, two in zip(methods, expected, first, strict=True):
        assert compared(two, one, 1e-6) is None, method


@pytest.mark.parametrize("layers", [None, 1])
def test_a_run_of_two_processes_goes_on_with_three_and_with_one(layers):
    settings = config("ieg", steps=18, methods=MethodSettings(ieg=AlgorithmSettings(meta_layers=layers)))
    [expected] = together(1, run(settings))
    state = together(2, run(settings, steps=7))[0]
    for processes in (3, 1):
        assert compared(together(processes, run(settings, state=state))[0], expected, 1e-6) is None
