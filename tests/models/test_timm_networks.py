"""Networks of timm follow the data: channels, classes, stem, and the scale of pretrained ones."""

import re
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import timm
import torch

from karat.errors import UserError
from karat.models import build_model, parameter_count
from karat.models.timm_networks import PretrainedInput


@pytest.mark.parametrize("name", ["timm:test_vit", "test_convnext", "test_efficientnet", "test_resnet"])
@pytest.mark.parametrize("channels", [1, 3])
def test_channels_and_classes_follow_the_data(name: str, channels: int) -> None:
    model = build_model(name, (channels, 32, 48), classes=7)
    assert model.training
    assert model(torch.randn(2, channels, 32, 48)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "size", "after_stem"),
    [("resnet18", 32, 32), ("resnet18", 64, 64), ("resnet18", 96, 24), ("resnet18d", 32, 32), ("resnet18d", 96, 24)],
)
def test_the_stem_of_a_resnet_keeps_the_size_of_small_images(name: str, size: int, after_stem: int) -> None:
    """Above 64 pixels convolution and max-pooling quarter the image; resnet18d has a stem of three convolutions."""
    model = build_model(name, (3, size, size), classes=10)
    assert isinstance(model, timm.models.resnet.ResNet)
    x = model.maxpool(model.act1(model.bn1(model.conv1(torch.zeros(1, 3, size, size)))))
    assert x.shape[-2:] == (after_stem, after_stem)


def test_building_leaves_no_trace_of_the_trial() -> None:
    """The trial on one image moves no BatchNorm statistics: they are those of a network made by timm itself."""
    torch.manual_seed(0)
    ours = build_model("test_efficientnet", (3, 32, 32), classes=10)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    theirs = timm.create_model("test_efficientnet", num_classes=10)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    assert torch.equal(after, torch.get_rng_state())


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("inception-resnet-v2", (3, 32, 80), "does not fit images of 32x80 (it needs 75 pixels or more): use images"),
        ("convnext_atto", (3, 16, 16), "Network 'convnext_atto' does not fit images of 16x16 ("),
        ("test_vit", (3, 40, 32), "its patches are 16 pixels wide, and 40 is no multiple of that"),
        ("vgg-13+pretrained", (3, 32, 32), "Model 'vgg-13' has no pretrained weights: only the networks of timm"),
        ("botnet50ts_256+pretrained", (3, 256, 256), "timm has no pretrained weights of 'botnet50ts_256'"),
        ("test_resnet+pretrained", (5, 32, 32), "takes images of 1 or 3 channels, and these have 5"),
    ],
)
def test_errors_say_the_remedy(name: str, shape: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        build_model(name, shape, classes=10)


def test_weights_that_are_not_here_are_never_fetched_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *names: pytest.fail("fetched"))
    sentence = "The pretrained weights of 'resnet18' are not on this machine: fetch them with --data.download true"
    with pytest.raises(UserError, match=re.escape(sentence)):
        build_model("resnet18+pretrained", (3, 32, 32), classes=10)


@pytest.mark.parametrize("channels", [1, 3])
def test_pretrained_weights_are_loaded_and_get_the_scale_of_their_training(channels: int, tmp_path: Path) -> None:
    """The head is new, the rest is as in the file, the stem too; timm says that this network's mean and std are 0.5."""
    source = timm.create_model("test_resnet")
    torch.save(source.state_dict(), tmp_path / "weights.pth")

    model = build_model("timm:test_resnet", (channels, 32, 32), classes=7, weights=tmp_path / "weights.pth").eval()

    assert isinstance(model, PretrainedInput)
    images = torch.rand(2, channels, 32, 32).expand(-1, 3, -1, -1)
    features = source.eval().forward_features((images - 0.5) / 0.5)
    expected = model.network.get_classifier()(source.global_pool(features))
    torch.testing.assert_close(model(2 * images[:, :channels] - 1), expected)
    assert not any(key.startswith(("scale", "shift")) for key in model.state_dict())


def test_karat_is_imported_without_timm() -> None:
    """Importing timm takes 2.5 s on one core of two: only who asks for one of its networks waits for it."""
    code = "import sys, karat.models as m; m.build_model('vgg-13', (1, 8, 8), 2); sys.exit('timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_inception_resnet_v2_has_its_size() -> None:
    """The authors' 55.8M for 1,000 classes: 1,536 features and a bias are 1,537 parameters a class."""
    model = build_model("inception-resnet-v2", (3, 75, 75), classes=10)
    assert parameter_count(model) == 55_843_464 - 990 * 1_537
