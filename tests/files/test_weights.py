"""Weights: exact round trips with their ties, and refusals in one sentence."""

import os

import pytest
import torch
from torch import nn

from karat.errors import UserError
from karat.files.checkpoints import save_checkpoint
from karat.files.weights import load_weights, save_weights


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 3)
        self.last.weight = self.first.weight


def test_weights_come_back_with_their_ties(tmp_path):
    saved, loaded = Tied(), Tied()
    saved.norm.running_mean.normal_()
    save_weights(tmp_path / "model.safetensors", saved)
    load_weights(tmp_path / "model.safetensors", loaded)
    assert loaded.last.weight is loaded.first.weight
    for name, tensor in saved.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_channels_last_weights_come_back(tmp_path):
    saved, loaded = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), nn.Conv2d(3, 4, 3)
    save_weights(tmp_path / "model.safetensors", saved)
    load_weights(tmp_path / "model.safetensors", loaded)
    assert torch.equal(saved.weight, loaded.weight)


def test_unfit_weights_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_weights(path, nn.Linear(2, 3))
    for other in [nn.Linear(3, 3), nn.Linear(2, 3, bias=False), nn.Sequential(nn.Linear(2, 3))]:
        with pytest.raises(UserError, match="do not fit this model"):
            load_weights(path, other)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match="is damaged"):
        load_weights(path, nn.Linear(2, 3))
    path.write_bytes(b"hello")
    with pytest.raises(UserError, match="is damaged"):
        load_weights(path, nn.Linear(2, 3))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Cannot read .*missing"):
        load_weights(tmp_path / "missing", nn.Linear(1, 1))


def test_files_have_the_usual_permissions(tmp_path):
    """A file made by `open` shows what the umask allows; a private temporary file would stay private."""
    (tmp_path / "usual").write_text("")
    save_checkpoint(tmp_path / "run.ckpt", {})
    save_weights(tmp_path / "model.safetensors", nn.Linear(1, 1))
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
