"""Features on disk: found again by their keys, whole after a kill, computed again where they are damaged."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from karat.data.feature_store import KEY, FeatureStore, MemoryStore
from karat.data.images import Lazy, take


def key(number: int) -> bytes:
    return number.to_bytes(KEY, "big")


def rows(*numbers: int) -> np.ndarray:
    """Return the features that belong to the keys: the number itself, and its half."""
    return np.array([[number, number / 2] for number in numbers], dtype=np.float32)


def filled(folder: Path) -> Path:
    with FeatureStore(folder, 2) as store:
        store.add([key(1), key(2)], rows(1, 2))
        store.add([key(3)], rows(3))
    return folder


def found(folder: Path, *numbers: int) -> tuple[list[int], int]:
    """Return which of these keys are missing, and how many are damaged; what is there must be right."""
    keys = [key(number) for number in numbers]
    with FeatureStore(folder, 2) as store:
        missing = store.missing(keys)
        here = [number for number in numbers if key(number) not in {keys[place] for place in missing}]
        stored = store.rows([key(number) for number in here])
        assert torch.equal(stored[torch.arange(len(here))], torch.from_numpy(rows(*here).reshape(-1, 2)))
        return [numbers[place] for place in missing], store.damaged


def test_features_are_found_in_any_order_by_later_processes(tmp_path: Path) -> None:
    filled(tmp_path)
    assert found(tmp_path, 3, 1) == ([], 0)
    assert found(tmp_path, 4, 2, 4) == ([4], 0)  # each missing key once
    with FeatureStore(tmp_path, 2) as store:
        stored = store.rows([key(3), key(1), key(1)])
    assert isinstance(stored, Lazy)
    assert stored.shape == (3, 2)
    assert take(stored, torch.tensor([1]))[[0]].tolist() == [[1.0, 0.5]]
    assert len(set(stored.digests())) == 2


def test_what_a_killed_process_was_writing_is_computed_again_and_nothing_else(tmp_path: Path) -> None:
    filled(tmp_path)
    with (tmp_path / "features.f32").open("ab") as file:  # a block without its line
        file.write(b"\1" * 11)
    with (tmp_path / "index.jsonl").open("a") as file:  # and half a line
        file.write('{"start": 3, "chec')
    assert found(tmp_path, 1, 2, 3, 4) == ([4], 0)
    with FeatureStore(tmp_path, 2) as store:
        store.add([key(4)], rows(4))
    assert found(tmp_path, 1, 2, 3, 4) == ([], 0)


@pytest.mark.parametrize("damage", ["bit", "cut", "index"])
def test_damage_is_noticed_and_mended(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """The first block has rows 1 and 2 in bytes 0 to 15, the second row 3."""
    filled(tmp_path)
    path, index = tmp_path / "features.f32", tmp_path / "index.jsonl"
    if damage == "bit":
        content = bytearray(path.read_bytes())
        content[5] ^= 1
        path.write_bytes(content)
        lost = [1, 2]
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:18])
        lost = [3]
    else:
        first, second = index.read_text().splitlines()
        index.write_text(json.dumps({**json.loads(first), "start": "x"}) + "\n" + second + "\n")
        lost = [1, 2]
    missing, damaged = found(tmp_path, 1, 2, 3)
    assert missing == lost
    assert damaged == (0 if damage == "index" else len(lost))
    assert ("are damaged" in caplog.text) == (damage != "index")
    with FeatureStore(tmp_path, 2) as store:
        store.add([key(number) for number in lost], rows(*lost))
    assert found(tmp_path, 1, 2, 3) == ([], 0)


def test_a_store_in_memory_does_the_same() -> None:
    with MemoryStore(2) as store:
        assert store.missing([key(1)]) == [0]
        store.add([key(1), key(2)], rows(1, 2))
        assert store.rows([key(2)])[[0]].tolist() == [[2.0, 1.0]]
