"""Views: seeded by one generator, of the same shape and range, and different enough."""

import itertools

import pytest
import torch

from karat.data.augmentation import Cutout
from karat.data.modality import modality_of
from karat.data.settings import AugmentationSettings
from karat.errors import UserError

SHAPES = [(1, 8, 8), (1, 12, 12), (3, 32, 32), (3, 20, 28), (2, 16, 16)]


def make_augmentation(shape, flip, settings):
    return modality_of(shape).augment(shape, flip, settings)


def images(shape, count=8):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.mark.parametrize("shape", SHAPES)
def test_image_views_keep_shape_and_range_and_depend_on_the_generator_alone(shape):
    augmentation = make_augmentation(shape, True, AugmentationSettings())
    found = []
    for seed, disturbance in ((1, 3), (1, 4), (2, 3)):
        torch.rand(disturbance)  # the global state must not matter
        before = torch.get_rng_state()
        generator = torch.Generator().manual_seed(seed)
        weak = augmentation.weak(images(shape), generator)
        strong = augmentation.strong(weak, generator)
        assert torch.equal(torch.get_rng_state(), before)
        for view in (weak, strong):
            assert view.shape == (8, *shape)
            assert view.min() >= -1
            assert view.max() <= 1
        found.append((weak, strong))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert not torch.equal(found[0][0], found[2][0])
    assert not torch.equal(found[0][1], found[2][1])
    assert not torch.equal(found[0][0], found[0][1])


@pytest.mark.parametrize("shape", SHAPES)
def test_close_ups_keep_shape_and_range_and_depend_on_the_generator_alone(shape):
    augmentation = make_augmentation(shape, True, AugmentationSettings())
    one, again, other = (augmentation.close_up(images(shape), torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert one.shape == (8, *shape)
    assert one.min() >= -1
    assert one.max() <= 1


@pytest.mark.parametrize(("side", "whole"), [(16, True), (40, False)])
def test_close_ups_show_a_part_of_images_that_are_large_enough(side, whole):
    """A frame on the border, a pixel wide, is outside of some parts of 40 pixels; of 16 pixels all are shown.

    Shifts of a sixteenth, mirrored at the border, never take all of a frame away.
    """
    frame = torch.full((200, 1, side, side), -1.0)
    frame[:, :, [0, -1]] = frame[:, :, :, [0, -1]] = 1.0
    close = make_augmentation((1, side, side), False, AugmentationSettings()).close_up(frame, torch.Generator())
    seen = (close[:, 0].flatten(1) > close[:, 0].flatten(1).mean(dim=1, keepdim=True) + 0.1).any(dim=1)
    assert seen.all() == whole


def test_who_says_which_close_ups_are_mirrored_decides_it():
    """The left half is dark; brightness and contrast change it, but the other half stays brighter."""
    half = torch.ones(64, 1, 16, 16)
    half[..., :8] = -0.5
    mirrored = torch.arange(64) % 2 == 0
    close = make_augmentation((1, 16, 16), True, AugmentationSettings(crop=0.0)).close_up(
        half, torch.Generator(), mirrored
    )
    assert torch.equal(close[:, 0, 8, 2] > close[:, 0, 8, 13], mirrored)


def test_every_policy_can_be_drawn():
    """Every operation of the policies works on its images: 40 draws of 2 of 13 miss one of them in 1 of 800."""
    for shape, policy in itertools.product([(1, 8, 8), (3, 16, 16)], ["randaugment", "autoaugment"]):
        augmentation = make_augmentation(shape, True, AugmentationSettings(policy=policy))
        generator = torch.Generator().manual_seed(0)
        for _ in range(40):
            assert augmentation.strong(images(shape, 2), generator).isfinite().all()


def test_nothing_is_mirrored_unless_it_may_be():
    """An image that is dark on its left half, without crop, keeps that half; mirrored, about half of them swap."""
    half = torch.ones(64, 1, 8, 8)
    half[..., :4] = -1
    settings = AugmentationSettings(crop=0.0)
    for flip, override, expected in ((False, None, 0), (True, None, 1), (False, True, 1), (True, False, 0)):
        augmentation = make_augmentation((1, 8, 8), flip, AugmentationSettings(crop=0.0, flip=override))
        view = augmentation.weak(half, torch.Generator().manual_seed(0))
        swapped = (view[:, 0, 0, 0] == 1).double().mean()
        assert (0.2 < swapped < 0.8) if expected else swapped == 0
    assert torch.equal(make_augmentation((1, 8, 8), False, settings).weak(half, torch.Generator()), half)


def test_crops_shift_by_a_share_of_each_side():
    """A sixteenth of 8x32 is half a row, which counts as one, and 2 columns: no bright pixel goes further."""
    images = torch.full((400, 1, 8, 32), -1.0)
    images[:, 0, 4, 16] = 1
    views = make_augmentation((1, 8, 32), False, AugmentationSettings()).weak(images, torch.Generator().manual_seed(0))
    _, _, row, column = (views > 0.9).nonzero().unbind(dim=1)
    assert len(row) == 400
    assert (row.min(), row.max()) == (3, 5)
    assert (column.min(), column.max()) == (14, 18)


def test_who_says_which_are_mirrored_decides_it():
    """Mirroring and shifting are one gather: without shifts, exactly those that are named are flipped."""
    batch, named = images((1, 8, 8)), torch.arange(8) % 3 == 0
    views = make_augmentation((1, 8, 8), True, AugmentationSettings(crop=0.0)).weak(batch, torch.Generator(), named)
    assert torch.equal(views[named], batch[named].flip(3))
    assert torch.equal(views[~named], batch[~named])


def test_what_is_shifted_out_is_seen_again_inside():
    """Shifts of at most 1 of the columns 0 to 7: each view is those columns, 1 0 … 6 or 1 … 7 6."""
    batch = (torch.arange(8.0) / 8).expand(200, 1, 8, 8)
    views = make_augmentation((1, 8, 8), False, AugmentationSettings()).weak(batch, torch.Generator().manual_seed(0))
    found = {tuple(row.tolist()) for row in (views[:, 0, 0] * 8).round().int()}
    assert found == {tuple(range(8)), (1, *range(7)), (*range(1, 8), 6)}


def test_cutout_hides_a_square_that_may_reach_over_the_border():
    """Side 4 of 8: at most 16 pixels get the mean, fewer where the centre is near the border: 2x2 at least."""
    batch = torch.zeros(500, 2, 8, 8)
    batch[0] = 1.0  # the mean is 1/500, which no pixel has
    hidden = (Cutout(0.5)(batch) == batch.mean()).sum(dim=(1, 2, 3)) / 2
    assert hidden.max() == 16
    assert 4 <= hidden.min() < 16


def test_vector_views():
    """The strong view drops the asked share of the features; the weak one moves them a little."""
    augmentation = make_augmentation((50,), False, AugmentationSettings(feature_dropout=0.2))
    inputs = torch.full((200, 50), 3.0)
    generator = torch.Generator().manual_seed(0)
    weak, strong = augmentation.weak(inputs, generator), augmentation.strong(inputs, generator)
    assert 0 < (weak - inputs).abs().max() < 0.1
    assert abs((strong == 0).double().mean() - 0.2) < 4 * (0.2 * 0.8 / inputs.numel()) ** 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cutout": 1.0}, "augmentation.cutout is 1.0"),
        ({"magnitude": 30}, "from 1 to 29"),
        ({"feature_noise": -0.1}, "0 or more"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        AugmentationSettings(**settings)


def test_learned_policy_is_refused_for_images_of_other_channels():
    with pytest.raises(UserError, match=r"these have 2 channels: write augmentation.policy: randaugment"):
        make_augmentation((2, 8, 8), False, AugmentationSettings(policy="autoaugment"))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 2), (3, 2, 9)])
def test_tiny_images(shape):
    augmentation = make_augmentation(shape, True, AugmentationSettings())
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):  # each draws two operations
        assert augmentation.strong(images(shape), generator).shape == (8, *shape)
    assert augmentation.weak(images(shape), generator).shape == (8, *shape)
    with pytest.raises(UserError, match="for images of 3 pixels and more, these are"):
        make_augmentation(shape, True, AugmentationSettings(policy="autoaugment"))
