"""Runs that train nothing: vectors and texts under method karat."""

import json

import numpy as np
import torch

from karat.cli import main
from karat.inference.model import load_model
from karat.settings.read import read_run_config
from karat.training.measured import evaluate_run
from karat.training.run import train


def write_embeddings(path, count=400, width=210, seed=0):
    """Write three classes around corners of a cube, 30% of the labels wrong, ten trusted of each."""
    random = np.random.default_rng(seed)
    true = np.arange(count) % 3
    inputs = (random.normal(size=(3, width)) * 0.5)[true] + random.normal(size=(count, width))
    trusted = np.arange(count) < 30
    given = np.where((random.random(count) < 0.3) & ~trusted, (true + 1) % 3, true)
    arrays = {"train_inputs": inputs[:300], "train_labels": given[:300], "trusted": trusted[:300]}
    np.savez(path, **arrays, test_inputs=inputs[300:], test_labels=true[300:])


def test_a_run_on_embeddings_fits_a_linear_classifier(tmp_path):
    write_embeddings(tmp_path / "mine.npz")
    result = train(tmp_path / "mine.npz", tmp_path / "run", training={"device": "cpu", "threads": 1})
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["model"] == "linear"
    assert result.selected == result.averaged == result.raw
    assert result.selected.top1 > 0.9
    module = load_model(tmp_path / "run").module
    assert isinstance(module, torch.nn.Linear)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    again = evaluate_run(read_run_config(tmp_path / "run"), tmp_path / "run")
    assert again["selected"].top1 == result.selected.top1


def test_settings_of_training_are_said_not_to_be_read(tmp_path, capsys):
    write_embeddings(tmp_path / "mine.npz")
    command = ["train", str(tmp_path / "mine.npz"), "--run", str(tmp_path / "run"), "--training.device", "cpu"]
    assert main([*command, "--training.threads", "1", "--training.epochs", "7"]) == 0
    assert "A run that trains no network does not read training.epochs" in capsys.readouterr().err.replace("\n", " ")
