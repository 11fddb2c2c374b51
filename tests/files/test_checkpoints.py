"""Checkpoints: exact round trips, whole files only, and refusals in one sentence."""

import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint, save_checkpoint

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory):
    return tmp_path_factory.mktemp("shared") / "plain.ckpt"


@settings(deadline=None, max_examples=50)
@given(state=st.dictionaries(st.text(), plain, max_size=4))
def test_plain_values_come_back_equal(shared_file, state):
    save_checkpoint(shared_file, state)
    assert load_checkpoint(shared_file) == state


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


def test_a_training_state_comes_back_bit_by_bit(tmp_path):
    """Model, optimizer with momentum, and tensors of several types, in a folder that does not exist yet."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        torch.optim.AdamW(model.parameters()),
    ]
    model(torch.randn(5, 3)).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "others": (torch.tensor([True]), torch.randn(2).bfloat16(), torch.tensor(3)),
    }
    save_checkpoint(tmp_path / "new" / "run.ckpt", state)
    loaded = load_checkpoint(tmp_path / "new" / "run.ckpt")
    assert_same(loaded, state)
    optimizers[1].load_state_dict(loaded["optimizers"][1])
    assert os.listdir(tmp_path / "new") == ["run.ckpt"]


@pytest.mark.parametrize("value", [np.float64(1.0), np.zeros(2), {1, 2}, object(), nn.Linear(1, 1)])
def test_what_could_not_be_loaded_is_not_saved(tmp_path, value):
    with pytest.raises(TypeError, match=r"state\['a'\]\[1\]\['b'\]"):
        save_checkpoint(tmp_path / "run.ckpt", {"a": [0, {"b": value}]})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("write", [torch.save, os.fsync, os.replace])
def test_a_failed_save_leaves_the_old_checkpoint(tmp_path, monkeypatch, write):
    """Whatever fails on the way (writing, syncing, moving), the old file is whole and no other is left."""

    def fail(*_):
        raise OSError("disk full")

    path = tmp_path / "run.ckpt"
    save_checkpoint(path, {"step": 1})
    with monkeypatch.context() as patched:
        patched.setattr(torch if write is torch.save else os, write.__name__, fail)
        with pytest.raises(OSError, match="disk full"):
            save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["run.ckpt"]


def test_damaged_checkpoints_are_refused(tmp_path):
    """Cut at any length, or with one flipped bit in the tensor, which the archive's checksum shows."""
    path = tmp_path / "run.ckpt"
    save_checkpoint(path, {"weights": torch.full((5000,), 1.2345)})
    whole = path.read_bytes()
    middle = whole.index(torch.tensor([1.2345] * 4).numpy().tobytes()) + 8000
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in [b"", whole[:10], whole[: len(whole) // 2], whole[:-1], flipped]:
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="is damaged or is not a Karat checkpoint"):
            load_checkpoint(path)


def test_foreign_files_are_refused_and_run_nothing(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    path = tmp_path / "foreign"
    for content in [{"step": 1}, [1], torch.zeros(2), {"format": "karat checkpoint 2", "state": Trap()}]:
        torch.save(content, path)
        with pytest.raises(UserError, match="not a Karat checkpoint"):
            load_checkpoint(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="not a Karat checkpoint"):
        load_checkpoint(path)
    assert not (tmp_path / "sprung").exists()


def test_a_checkpoint_of_an_older_version_gets_its_own_sentence(tmp_path):
    torch.save({"format": "karat checkpoint 1", "state": {"trainer": {}}}, tmp_path / "old")
    with pytest.raises(UserError, match=r"An older version of Karat made .*old"):
        load_checkpoint(tmp_path / "old")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Cannot read .*missing"):
        load_checkpoint(tmp_path / "missing")
