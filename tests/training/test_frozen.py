"""Which runs have features of a pretrained network, and which images these are computed from."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from karat import Config, make_task
from karat.data.datasets import load_data
from karat.data.settings import DataForNetwork, DataSettings
from karat.errors import UserError
from karat.models import pretrained
from karat.training import frozen

CPU = torch.device("cpu")


@pytest.fixture
def photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Write eight photographs, and let timm's cache hold one small network."""
    for number in range(8):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (90 + number, 100, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    file = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_resnet").state_dict(), file)
    monkeypatch.setattr(frozen, "at_hand", lambda names: "test_resnet")
    monkeypatch.setattr(pretrained, "_in_cache", lambda repository, url: file)
    return Config(data=DataSettings(str(tmp_path / "photos"), cache=tmp_path / "cache"))


def test_auto_takes_the_network_that_is_at_hand_for_photographs(photographs):
    """Its size is 160 pixels, by timm; the task of the images stays behind the features."""
    data = frozen.data_of(photographs)
    assert isinstance(data, DataForNetwork)
    task = make_task(load_data(data), data)
    found = frozen.featured(photographs, task, CPU, show=False)
    assert task.noisy.inputs.shape == (8, 3, 160, 160)
    assert found.noisy.inputs.shape[0] == 8
    assert len(found.noisy.inputs.shape) == 2
    assert found.origin.model == "timm:test_resnet+pretrained"
    assert found.seen is task
    assert found.fingerprint() == task.fingerprint()
    network = found.origin.network.eval()
    with torch.no_grad():
        expected = network.features(task.noisy.inputs[[3]])
    torch.testing.assert_close(found.noisy.inputs[[3]], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changed", [{"method": "supervised"}, {"model": "fast"}])
def test_other_runs_stay_as_they_are(photographs, changed):
    config = Config(data=photographs.data, **changed)
    assert frozen.data_of(config) is config.data
    task = make_task(load_data(DataSettings(config.data.name, image_size=32)))
    assert frozen.featured(config, task, CPU, show=False) is task


def test_small_images_are_left_to_small_networks_and_shown_to_others_enlarged(photographs):
    task = make_task(load_data(DataSettings(photographs.data.name, image_size=32)))
    assert frozen.featured(photographs, task, CPU, show=False) is task
    asked = Config(model="test_resnet+pretrained", data=photographs.data)
    found = frozen.featured(asked, task, CPU, show=False)
    assert found.origin.described["size"] == 160


def test_a_network_of_a_hub_is_for_method_karat(photographs):
    with pytest.raises(UserError, match="Method gce does not take hf-hub:a/b: name a network of timm"):
        frozen.check_weights(Config(method="gce", model="hf-hub:a/b"))


def test_vectors_and_many_channels_are_refused(photographs):
    asked = Config(model="test_resnet+pretrained", data=photographs.data)
    wine = make_task(load_data(DataSettings("wine", trusted_per_class=2)), DataSettings(trusted_per_class=2))
    with pytest.raises(UserError, match="needs images, and the data are vectors"):
        frozen.featured(asked, wine, CPU, show=False)
