"""The ledger's own file beside a checkpoint: named, checked, and never missing for the checkpoint that is there."""

import os
from pathlib import Path

import pytest
import torch

from karat.audit.ledger import Ledger
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint
from karat.training.run_checkpoint import PREVIOUS, drop_previous, save_with_ledger, settle, with_ledger


def state(step):
    ledger = Ledger(5, 3)
    ledger.record(torch.arange(5), torch.full((5, 3), float(step)), torch.zeros(5, dtype=torch.int64))
    ledger.loss_sum.fill_(step)
    return {"seconds": 1.0, "trainer": {"steps_done": step, "ledger": ledger.state_dict()}}


def read(folder):
    return with_ledger(folder, load_checkpoint(folder / "checkpoint.pt"))


def test_two_checkpoints_are_kept_and_the_last_comes_back(tmp_path):
    for step in (0, 7, 14):
        save_with_ledger(tmp_path, state(step))
    last = ["checkpoint.pt", "ledger-14.safetensors"]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.previous.pt", *last, "ledger-7.safetensors"]
    assert load_checkpoint(tmp_path / PREVIOUS)["trainer"]["steps_done"] == 7
    drop_previous(tmp_path)
    assert sorted(os.listdir(tmp_path)) == last
    back = read(tmp_path)
    assert back["seconds"] == 1.0
    expected = state(14)["trainer"]["ledger"]
    torch.testing.assert_close(back["trainer"]["ledger"], expected, equal_nan=True, rtol=0, atol=0)
    Ledger(5, 3).load_state_dict(back["trainer"]["ledger"])


@pytest.mark.parametrize("number", range(12))
def test_killed_at_any_moment_a_whole_checkpoint_is_left(tmp_path, monkeypatch, number):
    """Every call that changes the folder may be the last one: a whole checkpoint with its ledger is read afterwards.

    Two files with four such calls each (sync, move, tidy up, sync the folder); between them the old previous checkpoint
    goes and the last one is linked in its place; in the end the old ledger is removed: eleven.
    """
    save_with_ledger(tmp_path, state(0))
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
        patched.setattr(os, "link", dying(os.link))
        if number < 11:
            with pytest.raises(Killed):
                save_with_ledger(tmp_path, state(14))
        else:
            save_with_ledger(tmp_path, state(14))
    settle(tmp_path)
    step = read(tmp_path)["trainer"]["steps_done"]
    assert step == (7 if number <= 7 else 14)  # the eighth call moves the new checkpoint into place
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


@pytest.mark.parametrize("name", ["checkpoint.pt", "ledger-14.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_the_checkpoint_before_serves_where_the_last_one_is_damaged(tmp_path, caplog, name, damage):
    save_with_ledger(tmp_path, state(7))
    save_with_ledger(tmp_path, state(14))
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    path.unlink()
    content[-30] ^= 4  # the zip's table of contents, and a number of the ledger; the padding between them is nobody's
    if damage != "remove":
        path.write_bytes(content if damage == "flip" else content[:-20])
    (tmp_path / ".metrics.jsonl.77.tmp").touch()
    settle(tmp_path)
    assert "goes on from the checkpoint before it, of step 7" in caplog.text
    assert (read(tmp_path)["trainer"]["ledger"]["loss_sum"] == 7).all()
    assert not list(tmp_path.glob(".*"))


def test_without_links_the_previous_checkpoint_is_moved(tmp_path, monkeypatch, caplog):
    def refused(*arguments):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    save_with_ledger(tmp_path, state(7))
    save_with_ledger(tmp_path, state(14))
    assert load_checkpoint(tmp_path / PREVIOUS)["trainer"]["steps_done"] == 7
    (tmp_path / "checkpoint.pt").unlink()  # killed between the two moves
    settle(tmp_path)
    assert "checkpoint.pt is missing" in caplog.text
    assert read(tmp_path)["trainer"]["steps_done"] == 7
