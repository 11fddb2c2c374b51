"""Pretrained networks: which weights a name stands for, that they fit, and what the network makes of images."""

import json
import re
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file

from karat.errors import UserError
from karat.models.pretrained import (
    Pretrained,
    at_hand,
    build_pretrained,
    describe,
    fitted_square,
    load_pretrained,
)

NAME = "test_resnet"


@pytest.fixture
def network():
    torch.manual_seed(0)
    return timm.create_model(NAME).eval()


@pytest.fixture
def file(network, tmp_path: Path) -> Path:
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path / "weights.safetensors"


def in_hub(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path]) -> None:
    """Let the cache of this machine hold these files, and nothing be fetched."""
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repo, name: str(files.get(name, "")) or None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *names: pytest.fail("fetched"))
    monkeypatch.setattr("karat.models.pretrained._anything_cached", lambda: True)


def test_features_are_those_of_timm_at_the_scale_of_its_training(network, file) -> None:
    """timm's mean and std of this network are 0.5, so that it sees images in [-1, 1] as they are."""
    source, found = describe(f"timm:{NAME}", file)
    assert (source.architecture, source.size, found) == (NAME, 160, file)
    model, source = load_pretrained(replace(source, size=64), found, classes=5)
    images = torch.rand(2, 3, 64, 64) * 2 - 1
    expected = network.forward_head(network.forward_features(images), pre_logits=True)
    torch.testing.assert_close(model.eval().features(images), expected)
    torch.testing.assert_close(model(images), model.head(expected))
    assert len(source.digest) == 32
    again = build_pretrained(Pretrained.from_dict(json.loads(json.dumps(source.to_dict()))), classes=5).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(images), model(images))


def test_other_scales_and_greys_reach_the_network(network, file) -> None:
    """((x + 1)/2 - 0.25) / 0.5 is x·1 + 0.5: a grey image is three equal channels of that."""
    source = Pretrained(NAME, (0.25,) * 3, (0.5,) * 3, 64, "file")
    model, _ = load_pretrained(source, file, classes=2)
    grey = torch.rand(1, 1, 64, 64)
    torch.testing.assert_close(model.eval().features(grey), network.forward_head(
        network.forward_features((grey + 0.5).expand(-1, 3, -1, -1)), pre_logits=True))  # fmt: skip


def test_small_images_fill_the_square_and_keep_their_shape() -> None:
    """A left half of 0 and a right one of 1 in 8x16 pixels: the middle 8 columns are seen, the edge in their middle."""
    images = torch.cat([torch.zeros(1, 3, 8, 8), torch.ones(1, 3, 8, 8)], dim=3)
    seen = fitted_square(images, 32)
    assert seen.shape == (1, 3, 32, 32)
    assert seen[..., :12].max() == 0
    assert seen[..., 20:].min() == 1


def test_weights_of_another_network_are_refused_with_what_differs(tmp_path: Path, file) -> None:
    torch.manual_seed(0)
    for name in ("resnet18", "resnet34"):
        save_file(timm.create_model(name, num_classes=2).state_dict(), tmp_path / name)
    source, _ = describe("timm:resnet18", file)
    small = replace(source, size=32)
    load_pretrained(small, tmp_path / "resnet18", 3)  # its head has another number of classes, and is left out
    sentence = "not those of 'resnet18' (96 tensors are not of this network, first layer1.2."
    with pytest.raises(UserError, match=re.escape(sentence)):  # a deeper one has all tensors of a shallower one
        load_pretrained(small, tmp_path / "resnet34", 3)
    with pytest.raises(
        UserError, match=r"tensors are missing, first conv1.*; 47 tensors have another shape, first bn1"
    ):
        load_pretrained(small, file, 3)
    broken = {name: tensor.clone() for name, tensor in timm.create_model(NAME).state_dict().items()}
    broken["conv1.0.weight" if "conv1.0.weight" in broken else "conv1.weight"].fill_(float("nan"))
    save_file(broken, file)
    with pytest.raises(UserError, match="hold numbers that are not finite"):
        load_pretrained(replace(source, architecture=NAME, size=64), file, 3)


def test_weights_in_the_cache_are_taken_and_none_are_fetched_unasked(file, monkeypatch: pytest.MonkeyPatch) -> None:
    in_hub(monkeypatch, {"model.safetensors": file})
    assert describe(f"{NAME}+pretrained", None)[1] == file
    assert at_hand((NAME, "resnet18")) == NAME
    in_hub(monkeypatch, {})
    assert at_hand((NAME, "resnet18")) is None
    with pytest.raises(UserError, match=r"are not on this machine: fetch them with --data\.download true"):
        describe("resnet18+pretrained", None)
    with pytest.raises(UserError, match=r"hf-hub:a/b is not on this machine: fetch it with --data\.download true"):
        describe("hf-hub:a/b", None)


def test_a_download_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*names: str) -> str:
        raise OSError("no connection.\nAnd a long explanation.")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    sentence = "model.safetensors of 'resnet18' cannot be fetched (no connection): connect to the internet"
    with pytest.raises(UserError, match=re.escape(sentence)):
        describe("resnet18+pretrained", None, download=True)


def test_a_repository_of_a_hub_says_itself_what_it_is(file, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.json"
    settings = {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1], "input_size": [3, 96, 96]}
    config.write_text(json.dumps({"architecture": NAME, "pretrained_cfg": settings, "model_args": {"drop_rate": 0.1}}))
    in_hub(monkeypatch, {"model.safetensors": file, "config.json": config})
    source, found = describe("hf-hub:a/b", None)
    assert source == Pretrained(NAME, (0.1, 0.2, 0.3), (1.0, 1.0, 1.0), 96, "hf-hub:a/b", "", {"drop_rate": 0.1})
    assert found == file
    config.write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UserError, match="hf-hub:a/b is not a network of timm"):
        describe("hf-hub:a/b", None)


@pytest.mark.parametrize(
    ("model", "given", "sentence"),
    [
        ("auto", True, "needs the network that they belong to: write --model timm:NAME, too"),
        ("fast", True, "'fast' is not a network of timm, and only these have pretrained weights"),
        ("resnet18+pretrained", True, "leave +pretrained or --weights out"),
        ("hf-hub:a/b", True, "leave one of the two out"),
        ("hf-hub:a b/c/d", False, "names no repository"),
        ("densenet122+pretrained", False, "timm has densenet121"),
        ("botnet50ts_256+pretrained", False, "timm has no pretrained weights of 'botnet50ts_256': give a file"),
    ],
)
def test_names_that_make_no_sense_are_refused(model: str, given: bool, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        describe(model, tmp_path / "a.pt" if given else None)
