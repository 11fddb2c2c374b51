"""bfloat16: the network's passes alone are computed in it; where a device cannot, a sentence says so."""

import copy
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from karat.algorithm import coefficients as meta
from karat.algorithm.coefficients import meta_coefficients, meta_gradient
from karat.algorithm.network import Network
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import one_hot
from karat.cli import main
from karat.errors import UserError
from karat.methods import METHODS
from karat.methods.shared.last_layer import hidden
from karat.models import build_model
from karat.settings.config import Config, NoiseSettings, TrainingSettings
from karat.training import precision
from karat.training.precision import checked_precision
from karat.training.tasks import task_of
from karat.training.trainer import Trainer

CPU = torch.device("cpu")
OTHERS = sorted(METHODS.keys() - {"karat"})  # which has a test of its own: it judges labels for seconds


@pytest.fixture
def bfloat16():
    """Skip where this processor does not compute in it."""
    reason = precision._why_not("cpu")
    if reason is not None:
        pytest.skip(reason)
    return torch.bfloat16


class Seen(nn.Module):
    """A network that notes the types of numbers that its layers make, in each pass."""

    def __init__(self):
        super().__init__()
        self.network = build_model("fast-4", (3, 8, 8), 4)
        self.types = []

    def forward(self, inputs):
        logits = self.network(inputs)
        self.types.append(logits.dtype)
        return logits


def batch():
    inputs, trusted = torch.randn(12, 3, 8, 8), torch.randn(8, 3, 8, 8)
    given, verified = (one_hot(torch.arange(count) % 4, 4, like=inputs) for count in (12, 8))
    return inputs, given, trusted, verified


def test_ordinary_passes_are_short_and_everything_else_is_float32(bfloat16, monkeypatch):
    """Two views are in bfloat16; look-ahead, Jacobian-vector product, logits, slopes and gradients are not."""
    torch.manual_seed(0)
    module = Seen().train()
    network, optimizer = Network(module, precision=bfloat16), torch.optim.SGD(module.parameters(), lr=0.1)
    inputs, given, trusted, verified = batch()
    views = [network.forward_pass(view) for view in (inputs, inputs.flip(3))]
    assert module.types == [torch.bfloat16] * 2
    slopes = []

    def noted(*args):
        slopes.append(trusted_gradient(*args))
        return slopes[-1]

    trusted_gradient = meta.trusted_gradient
    monkeypatch.setattr(meta, "trusted_gradient", noted)
    found = meta_coefficients(network, optimizer, views, given, trusted, verified, AlgorithmSettings())
    assert module.types[2:] == [torch.float32] * 2
    (network(inputs).square().mean() + views[0].logits.mean()).backward()
    features = hidden(network, inputs)
    tensors = [*found, *slopes[0].values(), *(view.logits for view in views), features.features, features.logits,
               *module.parameters(), *(p.grad for p in module.parameters() if p.grad is not None)]  # fmt: skip
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


def test_coefficients_stay_near_those_of_float32(bfloat16):
    """Signs agree but for gains near 0: measured on digits, 98% to 100% of 100 (DECISIONS.md)."""
    torch.manual_seed(0)
    module = build_model("fast-8", (3, 8, 8), 4).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    inputs, given, trusted, verified = batch()
    gains = []
    for kind in (None, bfloat16):
        network = Network(copy.deepcopy(module), precision=kind)
        optimizer = torch.optim.SGD(network.module.parameters(), lr=0.1)
        views = [network.forward_pass(view) for view in (inputs, inputs.flip(3))]
        gains.append(meta_gradient(network, optimizer, views, given, trusted, verified, AlgorithmSettings()))
    exact, short = gains
    assert torch.cosine_similarity(exact.weights, short.weights, dim=0) > 0.99
    assert torch.cosine_similarity(exact.label_trust, short.label_trust, dim=0) > 0.99


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (SimpleNamespace(returncode=-4, stdout=""), "was ended by signal 4"),
        (SimpleNamespace(returncode=1, stdout=""), "on this processor failed"),
        (subprocess.TimeoutExpired("python", 1), "did not come to its end"),
    ],
)
def test_a_device_that_cannot_is_refused_in_a_sentence(done, said, monkeypatch):
    """The trial is made in a process of its own: an illegal instruction ends that one."""

    def run(command, **_):
        assert command[0] == sys.executable
        if isinstance(done, Exception):
            raise done
        return done

    precision._why_not.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    try:
        assert checked_precision("float32", CPU) is None  # nothing is tried
        with pytest.raises(UserError, match=f"bfloat16, and .*{said}.*: write training.precision: float32") as refused:
            checked_precision("bfloat16", CPU)
        assert "\n" not in str(refused.value)
    finally:
        precision._why_not.cache_clear()


@pytest.mark.parametrize(("name", "value"), [("precision", "float16"), ("batch_norm", "none")])
def test_other_values_are_refused(name, value):
    with pytest.raises(UserError, match=f"Unknown training.{name} '{value}'. "):
        TrainingSettings(**{name: value})


def settings(method, **training):
    return Config(
        method=method,
        model="mlp-8",
        data=replace(Config().data, name="wine", trusted_per_class=4),
        noise=NoiseSettings(kind="uniform", rate=0.4),
        training=TrainingSettings(batch_size=20, device="cpu", **training),
    )


def trained(config, stop=None, state=None):
    trainer = Trainer(config, task_of(config))
    if state is not None:
        trainer.load_state_dict(state)
    while trainer.steps_done < (stop or trainer.total_steps):
        trainer.train_step()
        if trainer.evaluation_due:
            trainer.end_epoch()
    return trainer


@pytest.mark.parametrize("method", OTHERS)
def test_every_method_learns_in_bfloat16_and_resumes_to_the_bit(method, bfloat16):
    config = settings(method, steps=12, precision="bfloat16")
    straight, half = trained(config).state_dict(), trained(config, stop=7).state_dict()
    resumed = trained(config, state=copy.deepcopy(half)).state_dict()
    for name, value in straight["model"].items():
        assert value.dtype != torch.bfloat16
        assert torch.equal(value, resumed["model"][name])


@pytest.mark.parametrize("method", OTHERS)
def test_every_method_learns_compiled(method, monkeypatch):
    """By the graphs that torch would compile, without a compiler: the network's own numbers, but for rounding."""
    compile_graphs = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda module, **_: compile_graphs(module, dynamic=False, backend="aot_eager")
    )
    torch._dynamo.reset()
    plain, compiled = (trained(settings(method, steps=4, compile=compile)) for compile in (False, True))
    network = compiled.learner.network
    assert network.compiled is not None
    assert not network.compiled.failed
    for name, value in plain.state_dict()["model"].items():
        torch.testing.assert_close(compiled.state_dict()["model"][name], value, rtol=1e-3, atol=1e-4)


def test_karat_learns_images_in_bfloat16_and_resumes_to_the_bit(bfloat16):
    """Stopped while there are two networks."""
    config = settings("karat", steps=12, precision="bfloat16")
    config = replace(config, model="fast-2", data=replace(config.data, name="digits", limit=100))
    resumed = trained(config, state=copy.deepcopy(trained(config, stop=3).state_dict()))
    straight = trained(config).state_dict()["model"]
    assert all(torch.equal(value, straight[name]) for name, value in resumed.state_dict()["model"].items())


def test_what_cannot_be_is_said_by_the_command(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(precision, "_why_not", lambda device: "a trial of it on this processor was ended by signal 4")
    wrong = {"bfloat16": "ended by signal 4: write training.precision: float32.", "float16": "choose one of"}
    for value, said in wrong.items():
        assert main(["train", "wine", "--run", str(tmp_path / value), "--training.precision", value]) == 2
        assert said in capsys.readouterr().err
