import numpy as np
import pytest
import torch
from PIL import Image

from karat.data.images import ImageFiles
from karat.data.noise.open_set import fit_images, open_source, replace_images
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import prepare_task
from karat.errors import UserError

COUNT = 200


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def grey_data(channels=3):
    """Return images of the value 0 with labels: every replaced pixel shows."""
    return torch.zeros(COUNT, channels, 8, 8), torch.arange(COUNT) % 4


def image_folder(folder, value, count=COUNT, size=(20, 16)):
    (folder / "deeper").mkdir(parents=True)
    for number in range(count):
        place = folder / "deeper" if number % 2 else folder
        Image.fromarray(np.full((*size, 3), value, dtype=np.uint8)).save(place / f"{number}.png")
    return folder


def white_npz(file, count=COUNT):
    np.savez(file, data=np.full((count, 3 * 16 * 16), 255, dtype=np.uint8))
    return str(file)


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_share_of_the_images_is_replaced_and_the_labels_are_kept(tmp_path, rate, channels):
    inputs, labels = grey_data(channels)
    source = white_npz(tmp_path / "white.npz")
    new, noisy = replace_images(inputs, labels, 4, rate, source, None, generator())
    replaced = noisy.true == -1
    assert replaced.sum() == round(rate * COUNT)
    assert noisy.rate == rate
    assert torch.equal(noisy.given, labels)
    assert torch.equal(noisy.true[~replaced], labels[~replaced])
    torch.testing.assert_close(new[replaced], torch.ones_like(new[replaced]))
    assert not new[~replaced].any()
    assert not inputs.any()  # the data's own images stay
    assert noisy.transition.equal(torch.eye(4, dtype=torch.float64))
    if rate == 0.25:
        assert torch.equal(noisy.realised_transition, noisy.transition)
        again = replace_images(inputs, labels, 4, rate, source, None, generator())[1]
        other = replace_images(inputs, labels, 4, rate, source, None, generator(1))[1]
        assert torch.equal(again.true, noisy.true)
        assert not torch.equal(other.true, noisy.true)


def test_two_sources_give_half_each(tmp_path):
    white, black = white_npz(tmp_path / "white.npz"), image_folder(tmp_path / "black", 0)
    inputs, labels = grey_data()
    new, noisy = replace_images(inputs, labels, 4, 0.5, f"{white}+{black}", None, generator())
    values = new.mean(dim=(1, 2, 3)).round()
    assert (values == 1).sum() == (values == -1).sum() == COUNT // 4
    assert torch.equal(values != 0, noisy.true == -1)


def test_each_source_has_a_folder_of_its_name_in_the_source_path(tmp_path):
    image_folder(tmp_path / "imagenet", 255)
    inputs, labels = grey_data()
    for folder in (tmp_path, tmp_path / "imagenet"):
        new, _ = replace_images(inputs, labels, 4, 0.5, "imagenet", folder, generator())
        assert (new == 1).all(dim=3).all(dim=2).all(dim=1).sum() == COUNT // 2
    new, _ = replace_images(inputs, labels, 4, 0.5, "digits+imagenet", tmp_path, generator())
    assert (new == 1).all(dim=3).all(dim=2).all(dim=1).sum() == COUNT // 4


def test_imagenet_as_npz_files(tmp_path):
    white_npz(tmp_path / "train_data_batch_1.npz", count=3)
    white_npz(tmp_path / "train_data_batch_2.npz", count=4)
    assert open_source("imagenet", tmp_path, 8).shape == (7, 3, 16, 16)


def test_image_files_take_the_paths_of_foreign_files(tmp_path):
    own, foreign = image_folder(tmp_path / "own", 0, 20), image_folder(tmp_path / "foreign", 255, 20)
    inputs = ImageFiles(sorted(own.rglob("*.png")), 6)
    labels = torch.arange(20) % 2
    new, noisy = replace_images(inputs, labels, 2, 0.4, str(foreign), None, generator())
    assert isinstance(new, ImageFiles)
    assert torch.equal(new[torch.arange(20)].mean(dim=(1, 2, 3)) > 0, noisy.true == -1)
    assert (inputs[torch.arange(20)] == -1).all()
    with pytest.raises(UserError, match="source digits is not: give a folder of images"):
        replace_images(inputs, labels, 2, 0.4, "digits", None, generator())


def test_images_are_fitted_to_the_data():
    """Luma of pure green is 0.587: from [-1, 1, -1] it is −0.299 + 0.587 − 0.114 = 0.174."""
    green = torch.tensor([-1.0, 1.0, -1.0])[None, :, None, None].expand(2, 3, 4, 4)
    torch.testing.assert_close(fit_images(green, (1, 4, 4)), torch.full((2, 1, 4, 4), 0.174))
    transparent = torch.cat([green, -torch.ones(2, 1, 4, 4)], dim=1)
    assert torch.equal(fit_images(transparent, (3, 4, 4)), green)
    assert fit_images(green, (3, 9, 5)).shape == (2, 3, 9, 5)
    with pytest.raises(UserError, match="Images of 3 channels cannot take the place of images of 2"):
        fit_images(green, (2, 4, 4))


def test_a_whole_task_with_foreign_images(tmp_path):
    noise = NoiseSettings("open_set", rate=0.3, source=white_npz(tmp_path / "white.npz", count=400))
    task = prepare_task(DataSettings("digits"), noise)
    assert task.noisy.inputs.shape == (1200, 1, 12, 12)
    replaced = task.labels.true == -1
    assert replaced.sum() == 360
    assert torch.equal(task.mislabelled, replaced)
    assert (task.noisy.inputs[replaced] == 1).all()
    assert not (task.noisy.inputs[~replaced] == 1).all(dim=3).all(dim=2).any()
    assert (
        task.dataset.train.inputs == prepare_task(DataSettings("digits"), NoiseSettings()).dataset.train.inputs
    ).all()
    with pytest.raises(UserError, match=r"The data are digits themselves: choose another noise.source"):
        prepare_task(DataSettings("digits"), NoiseSettings("open_set", rate=0.3, source="digits"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("digit", r"no open-set source 'digit'\. Did you mean 'digits'\? Give noise.source a dataset, an .npz file"),
        ("wine", "source wine holds vectors, not images: choose another"),
        ("imagenet", "imagenet needs its folder: set noise.source_path"),
        ("few.npz", "has 3 images and 100 are asked for: add images to it, or lower noise.rate"),
        ("odd.npz", "have 7 values, which is no square colour image"),
        ("unnamed.npz", "has no data and no train_inputs: save the foreign images"),
        ("empty", "no images and no .npz files in .*: check the path"),
    ],
)
def test_unusable_sources(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    white_npz(tmp_path / "few.npz", count=3)
    np.savez(tmp_path / "odd.npz", data=np.zeros((300, 7), dtype=np.uint8))
    np.savez(tmp_path / "unnamed.npz", pixels=np.zeros((300, 12), dtype=np.uint8))
    with pytest.raises(UserError, match=message):
        replace_images(*grey_data(), 4, 0.5, source, None, generator())


def test_vectors_cannot_be_replaced():
    with pytest.raises(UserError, match=r"replaces images, and the data are vectors: choose another noise.kind"):
        replace_images(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]), 2, 0.5, "digits", None, generator())
