"""What inputs look like: features without labels."""

import gc
from dataclasses import replace

import pytest
import torch

from karat.methods.karat.appearance import learn_appearance, one_length
from karat.methods.karat.constants import CONSTANTS

LENGTH = CONSTANTS.appearance.length

NAMES = {2: "vectors", 4: "images"}


def described(inputs, mirrored=False):
    read = lambda rows: inputs[rows]  # noqa: E731
    appearance = learn_appearance(read, len(inputs), NAMES[inputs.dim()], torch.Generator(), mirrored)
    features = appearance.features(read, torch.arange(len(inputs)))
    return one_length(features).of(features)


def stripes(count, size, channels=1):
    """Return noisy images of horizontal (0) and vertical (1) stripes that start anywhere: no pixel tells them."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    waves = torch.sin(torch.arange(size) * 2.0 + 6.28 * torch.rand(count, 1, generator=generator))
    images = torch.where(labels[:, None, None] == 0, waves[:, :, None], waves[:, None, :]).unsqueeze(1)
    images = images.repeat(1, channels, 1, 1)
    return images + 0.5 * torch.randn(images.shape, generator=generator), labels


def separated(features, labels):
    """Return how far the classes' means are apart, in standard deviations along the line between them."""
    line = features[labels == 0].mean(dim=0) - features[labels == 1].mean(dim=0)
    along = features @ (line / line.norm())
    return line.norm() / along[labels == 0].std()


@pytest.mark.parametrize(("size", "channels"), [(8, 1), (12, 3), (28, 1), (40, 3)])
def test_images_that_no_pixel_tells_apart(size, channels):
    images, labels = stripes(300, size, channels)
    assert separated(images.flatten(1), labels) < 1
    features = described(images)
    assert features.shape[1] == CONSTANTS.appearance.directions
    assert separated(features, labels) > 3


def test_features_have_one_length_whatever_the_scale_of_the_inputs():
    images, _ = stripes(100, 12)
    features = described(images)
    assert features.square().sum(dim=1).mean().sqrt() == pytest.approx(LENGTH, rel=1e-3)
    torch.testing.assert_close(described(200 * images + 30), features, rtol=1e-2, atol=1e-2)


def test_an_image_and_its_mirror_image_look_the_same_where_that_is_said():
    images, _ = stripes(100, 12)
    both = torch.cat([images, images.flip(3)])
    first, second = described(both, mirrored=True).chunk(2)
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-3)
    first, second = described(both).chunk(2)
    assert (first - second).abs().max() > 1


def test_columns_of_a_table_are_standardised():
    table = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1000.0, 0.0]) + 5
    features = described(table)
    assert features.shape == (50, 3)
    torch.testing.assert_close(features[:, :2].std(dim=0, correction=0), torch.full((2,), LENGTH / 2**0.5))
    assert (features[:, 2] == 0).all()


@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 1, 1), (1, 2, 9), (5,), (300,)])
def test_inputs_that_are_all_the_same_say_nothing(shape):
    features = described(torch.full((20, *shape), 0.5))
    assert features.isfinite().all()
    torch.testing.assert_close(features, torch.zeros_like(features))


def test_the_random_state_of_torch_is_left_alone():
    images, _ = stripes(100, 12)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    described(images)
    assert torch.equal(torch.rand(1), expected)


def test_how_far_it_has_come_is_told():
    table, shares = torch.zeros(80, 3), []
    read = lambda rows: table[rows]  # noqa: E731
    learn_appearance(read, 80, "vectors", torch.Generator()).features(read, torch.arange(80), shares.append)
    assert shares == [0.4, 0.8, 1.0]


def test_a_chunk_leaves_no_tensor_behind():
    """Small tensors that stay, each made after large ones were freed, keep glibc from using their memory again.

    With one thread a run on 50,000 images grew by 16 MB a chunk that way. What is alive is counted at every reading.
    """
    images = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    constants = replace(CONSTANTS.appearance, chunk=10)
    alive = []

    def read(rows):
        alive.append(sum(type(one) is torch.Tensor for one in gc.get_objects()))
        return images[rows]

    appearance = learn_appearance(read, len(images), "images", torch.Generator(), constants=constants)
    learning = len(alive)
    appearance.features(read, torch.arange(len(images)))
    for part in (alive[:learning], alive[learning:]):
        assert len(part) == 10
        assert len(set(part[2:])) == 1
