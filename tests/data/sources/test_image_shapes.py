import pytest
from making import encoded, picture
from PIL import Image

from karat.data.sources import image_shapes
from karat.data.sources.image_shapes import choose_shape


@pytest.mark.parametrize(
    ("sizes", "gpu", "expected"),
    [
        ([(28, 28)] * 3, False, (28, 28)),  # one common small size stays
        ([(20, 48)] * 3, False, (20, 48)),  # also if it is no square
        ([(28, 28), (30, 28)], False, (32, 32)),
        ([(50, 90)] * 2 + [(90, 55)], False, (64, 64)),  # medians 50 and 55: 64 is nearer than 32
        ([(400, 500)] * 3, False, (64, 64)),  # what a processor trains on
        ([(400, 500)] * 3, True, (224, 224)),
        ([(100, 100)] * 3, True, (96, 96)),
        ([(9, 12), (11, 10)], False, (32, 32)),
    ],
)
def test_size_from_the_data_and_the_machine(monkeypatch, sizes, gpu, expected):
    monkeypatch.setattr(image_shapes.torch.cuda, "is_available", lambda: gpu)
    images = [encoded(picture(*size)) for size in sizes]
    notes = []
    assert choose_shape(images, None, notes) == (3, *expected)
    assert bool(notes) == (expected not in ((28, 28), (20, 48)))
    assert choose_shape(images, 10, []) == (3, 10, 10)


def test_a_turned_picture_counts_as_it_is_shown():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert choose_shape([encoded(picture(20, 40), exif=exif)], None, []) == (3, 40, 20)


def test_grey_pictures_have_one_channel_whatever_their_mode():
    grey = picture(channels=1)
    kinds = [encoded(grey.convert(mode)) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")]
    assert choose_shape(kinds, None, [])[0] == 1
    assert choose_shape([*kinds, encoded(picture())], None, [])[0] == 3
    assert choose_shape([b"damaged"], None, []) == (3, 32, 32)
