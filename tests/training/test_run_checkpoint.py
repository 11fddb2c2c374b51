"""The ledger's own file beside a checkpoint: named, checked, and never missing for the checkpoint that is there."""

import os
from pathlib import Path

import pytest
import torch

from karat.audit.ledger import Ledger
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint
from karat.training.run_checkpoint import save_with_ledger, with_ledger


def state(step):
    ledger = Ledger(5, 3)
    ledger.record(torch.arange(5), torch.full((5, 3), float(step)), torch.zeros(5, dtype=torch.int64))
    ledger.loss_sum.fill_(step)
    return {"seconds": 1.0, "trainer": {"steps_done": step, "ledger": ledger.state_dict()}}


def read(folder):
    return with_ledger(folder, load_checkpoint(folder / "checkpoint.pt"))


def test_one_ledger_is_kept_and_comes_back(tmp_path):
    for step in (7, 14):
        save_with_ledger(tmp_path, state(step))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.pt", "ledger-14.safetensors"]
    back = read(tmp_path)
    assert back["seconds"] == 1.0
    expected = state(14)["trainer"]["ledger"]
    torch.testing.assert_close(back["trainer"]["ledger"], expected, equal_nan=True, rtol=0, atol=0)
    Ledger(5, 3).load_state_dict(back["trainer"]["ledger"])


@pytest.mark.parametrize("number", range(10))
def test_killed_at_any_moment_a_whole_checkpoint_is_left(tmp_path, monkeypatch, number):
    """Every call that changes the folder may be the last one: a whole checkpoint with its ledger is read afterwards.

    Two files with four such calls each (sync, move, tidy up, sync the folder), then the old ledger is removed: nine.
    """
    save_with_ledger(tmp_path, state(7))
    calls = iter(range(100))

    class Killed(BaseException):
        pass

    def dying(real):
        def call(*arguments, **options):
            if next(calls) >= number:  # and nothing after it
                raise Killed
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(os, "fsync", dying(os.fsync))
        patched.setattr(Path, "unlink", dying(Path.unlink))
        if number < 9:
            with pytest.raises(Killed):
                save_with_ledger(tmp_path, state(14))
        else:
            save_with_ledger(tmp_path, state(14))
    step = read(tmp_path)["trainer"]["steps_done"]
    assert step == (7 if number <= 5 else 14)  # the sixth call moves the new checkpoint into place
    assert (read(tmp_path)["trainer"]["ledger"]["loss_sum"] == step).all()


def test_a_damaged_or_missing_ledger_is_said(tmp_path):
    save_with_ledger(tmp_path, state(7))
    path = tmp_path / "ledger-7.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(UserError, match="is damaged or missing"):
        read(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match="is damaged or missing"):
        read(tmp_path)
