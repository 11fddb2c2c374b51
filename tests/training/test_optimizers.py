"""Optimizers from their settings: what torch gets, and what it has no name for."""

import inspect

import pytest
import torch

from karat.cli import main
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint
from karat.settings.config import OptimizerSettings
from karat.training.optimizers import OPTIMIZERS, make_optimizer


def built(*arguments, **settings):
    return make_optimizer(
        torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)), OptimizerSettings(*arguments, **settings)
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_the_table_is_built_and_can_be_looked_ahead_of(name):
    group = built(name, rate=0.02, weight_decay=0.03).param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (0.02, 0.03)
    assert "differentiable" in inspect.signature(OPTIMIZERS[name]).parameters
    assert "momentum" not in group or group["momentum"] == (0.6 if name == "muon" else 0.9)


def test_options_go_to_torch():
    assert built("adam", options={"betas": [0.8, 0.9], "amsgrad": True}).param_groups[0]["betas"] == (0.8, 0.9)
    assert built(options={"dampening": 0.1}).param_groups[0]["dampening"] == 0.1
    assert built("sgd", nesterov=True).param_groups[0]["nesterov"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"name": "adam", "options": {"beta": 1}},
            r"Unknown option of adam 'beta'\. Did you mean 'betas'\? Choose one of: amsgrad, betas, ",
        ),
        ({"options": {"momentum": 0.5}}, r"Unknown option of sgd 'momentum'\. Choose one of: dampening\."),
        ({"options": {"foreach": True}}, "Unknown option of sgd 'foreach'"),
        ({"name": "adam", "options": {"betas": 0.9}}, "The optimizer cannot be built"),
        ({"name": "adam", "options": {"betas": [0.9, 1.5]}}, "The optimizer cannot be built .Invalid beta parameter"),
        ({"name": "adam", "nesterov": True}, "optimizer.nesterov needs optimizer.name: sgd and a momentum above 0"),
        ({"momentum": 0.0, "nesterov": True}, "a momentum above 0"),
        ({"name": "sdg"}, "Unknown optimizer 'sdg'. Did you mean 'sgd'"),
    ],
)
def test_mistakes(settings, message):
    with pytest.raises(UserError, match=message):
        built(**settings)


def test_options_reach_a_run_and_its_resumption(tmp_path):
    options = ["--optimizer.name", "adam", "--optimizer.rate", "0.01", "--optimizer.options", '{"betas": [0.5, 0.6]}']
    quick = ["wine", "--method", "supervised", "--training.steps", "2", "--training.checkpoint_every", "1"]
    assert main(["train", *quick, *options, "--run", str(tmp_path)]) == 0
    state = load_checkpoint(tmp_path / "checkpoint.pt")
    assert state["config"]["optimizer"]["options"] == {"betas": [0.5, 0.6]}
    assert main(["train", "--run", str(tmp_path), "--resume"]) == 0
