"""Weights that others saved: read without running anything in them, and every mistake is one sentence."""

import pickle
import re
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from karat.errors import UserError
from karat.files.weights import read_foreign_weights

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3), "a.bias": torch.zeros(2)}


class Hostile:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("wrapped", ["plain", "state_dict", "module", "old"])
def test_files_of_torch_are_read_as_training_scripts_write_them(tmp_path: Path, wrapped: str) -> None:
    several = {f"module.{name}": tensor for name, tensor in WEIGHTS.items()}
    content = {"state_dict": {"epoch": 3, "state_dict": WEIGHTS}, "module": several}.get(wrapped, WEIGHTS)
    torch.save(content, tmp_path / "a.pt", _use_new_zipfile_serialization=wrapped != "old")
    found = read_foreign_weights(tmp_path / "a.pt")
    assert found.keys() == WEIGHTS.keys()
    torch.testing.assert_close(found, WEIGHTS)


def test_safetensors_are_read_whatever_they_are_called(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "a.bin")
    torch.testing.assert_close(read_foreign_weights(tmp_path / "a.bin"), WEIGHTS)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_a_file_is_run(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "a.pt"
    torch.save({"a": Hostile(tmp_path / "ran")}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match="could run code, so it is not loaded: save the network's state_dict"):
        read_foreign_weights(path)
    path.write_bytes(pickle.dumps(Hostile(tmp_path / "ran")))
    with pytest.raises(UserError, match="could run code"):
        read_foreign_weights(path)
    assert not (tmp_path / "ran").exists()


def test_every_mistake_is_one_sentence(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("notes.txt", "hello")
    contents = {
        "empty": (b"", "is empty: get a fresh copy"),
        "half.pt": (whole[: len(whole) // 2], "is damaged or is not a file of torch"),
        "text.safetensors": (b"<!doctype html>", "is damaged or is not a safetensors file"),
        "huge.safetensors": (b"\xff" * 8 + b"{}", "is damaged or is not a safetensors file"),
    }
    for name, (content, _) in contents.items():
        (tmp_path / name).write_bytes(content)
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({**WEIGHTS, "epoch": 3}, tmp_path / "more.pt")
    sentences = {
        **{name: sentence for name, (_, sentence) in contents.items()},
        "": "is a folder, not a file: give the file of the weights",
        "nowhere.pt": "There is no file",
        "list.pt": "holds no tensors by name",
        "more.pt": "holds other things than tensors ('epoch')",
        "zip": "is damaged or is not a file of torch",
    }
    for name, sentence in sentences.items():
        with pytest.raises(UserError, match=re.escape(sentence)) as raised:
            read_foreign_weights(tmp_path / name)
        assert "\n" not in str(raised.value), name
