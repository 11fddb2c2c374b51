import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from karat.data import images as images_module
from karat.data.arrays import scale_images
from karat.data.examples import Dataset, Examples
from karat.data.images import ImageFiles, take
from karat.data.noise.labels import NoisyLabels
from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.inference.evaluation import evaluate, predict_probabilities

RANDOM = np.random.default_rng(0)


def write(folder, count=4, side=8):
    """Write random PNGs, which lose nothing, and return their paths and pixels."""
    pixels = RANDOM.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    paths = [folder / f"{number}.png" for number in range(count)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    return paths, pixels


def scaled(pixels):
    """Pixel / 127.5 − 1, channels first: the scale of images in memory."""
    return torch.tensor(pixels / 127.5 - 1, dtype=torch.float32).movedim(-1, 1)


@pytest.mark.parametrize(
    "rows", [torch.tensor([2, 0, 2]), [3, 1], slice(1, 3), slice(None), torch.tensor([1, 1, 0, 1]) > 0]
)
def test_rows_come_in_order_and_in_the_scale_of_images_in_memory(tmp_path, rows):
    paths, pixels = write(tmp_path)
    files = ImageFiles(paths, size=8)
    expected = scaled(pixels)[rows]
    for _ in range(2):  # decoded, then from the cache
        torch.testing.assert_close(files[rows], expected)
    assert files[rows].dtype == torch.float32
    assert files.shape == (4, 3, 8, 8)
    assert len(files) == 4


def test_no_rows(tmp_path):
    paths, _ = write(tmp_path)
    assert ImageFiles(paths, size=8)[torch.tensor([], dtype=torch.int64)].shape == (0, 3, 8, 8)


def test_views_share_the_cache_and_decode_nothing(tmp_path, monkeypatch):
    paths, pixels = write(tmp_path)
    decoded = []
    decode = ImageFiles._decode
    monkeypatch.setattr(ImageFiles, "_decode", lambda self, row: decoded.append(row) or decode(self, row))
    files = ImageFiles(paths, size=8)
    view = files.subset(torch.tensor([3, 2, 1])).subset(torch.tensor([2, 0]))
    assert view.paths == [str(paths[1]), str(paths[3])]
    assert not decoded
    torch.testing.assert_close(view[:], scaled(pixels[[1, 3]]))
    files[:]
    assert sorted(decoded) == [0, 1, 2, 3]  # each file once


def test_a_full_cache_keeps_what_it_has(tmp_path, monkeypatch):
    """Room for two images of 8·8·3 bytes: of four rows read twice, the first two are decoded once, the others twice."""
    paths, pixels = write(tmp_path)
    decoded = []
    decode = ImageFiles._decode
    monkeypatch.setattr(ImageFiles, "_decode", lambda self, row: decoded.append(row) or decode(self, row))
    files = ImageFiles(paths, size=8, cache_bytes=2 * 8 * 8 * 3 + 1)
    for _ in range(2):
        torch.testing.assert_close(files[:], scaled(pixels))
    assert sorted(decoded) == [0, 1, 2, 2, 3, 3]


def test_output_order_does_not_depend_on_threads(tmp_path, monkeypatch):
    paths, pixels = write(tmp_path, count=30)
    for workers in (1, 7):
        monkeypatch.setattr(images_module, "_WORKERS", workers)
        torch.testing.assert_close(ImageFiles(paths, size=8)[:], scaled(pixels))


def test_shorter_side_is_resized_and_the_centre_kept(tmp_path):
    """40x20 at size 10: resized to 20x10, then 5 pixels are cut off at both ends."""
    pixels = RANDOM.integers(0, 256, (20, 40, 3), dtype=np.uint8)
    wide, high = Image.fromarray(pixels), Image.fromarray(pixels.transpose(1, 0, 2))
    wide.save(tmp_path / "wide.png")
    high.save(tmp_path / "high.png")
    both = ImageFiles([tmp_path / "wide.png", tmp_path / "high.png"], size=10)[:]
    expected = [
        wide.resize((20, 10), Image.Resampling.BILINEAR).crop((5, 0, 15, 10)),
        high.resize((10, 20), Image.Resampling.BILINEAR).crop((0, 5, 10, 15)),
    ]
    torch.testing.assert_close(both, scaled(np.stack([np.asarray(image) for image in expected])), atol=1 / 127, rtol=0)


PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16", "transparent")


@pytest.mark.parametrize(
    ("mode", "ending"), [*((mode, "png") for mode in PNG_MODES), ("L", "jpg"), ("RGB", "jpg"), ("CMYK", "jpg")]
)
def test_every_mode_becomes_rgb(tmp_path, mode, ending):
    """A picture of one grey, 102 of 255, comes out as that grey: 102 / 127.5 − 1 = −0.2; mode 1 has white."""
    grey = Image.new("RGB", (8, 12), (102, 102, 102))
    file, options = tmp_path / f"image.{ending}", {}
    if mode == "1":
        image = Image.new("1", (8, 12), 1)
    elif mode == "I;16":
        image = Image.fromarray(np.full((12, 8), 102 * 257, dtype=np.uint16))
    elif mode == "transparent":
        image, options = grey.convert("P"), {"transparency": bytes([0, 128])}
    else:
        image = grey.convert(mode)
    image.save(file, **options)
    decoded = ImageFiles([file], size=8)[:]
    assert decoded.shape == (1, 3, 8, 8)
    torch.testing.assert_close(decoded, torch.full_like(decoded, 1.0 if mode == "1" else -0.2), atol=0.02, rtol=0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright(tmp_path, orientation):
    """Pillow's own way of turning a picture upright is the reference."""
    pixels = RANDOM.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    torch.testing.assert_close(ImageFiles([tmp_path / "turned.png"], size=8)[[0]], scaled(expected[None]))


def test_a_large_jpeg_keeps_its_colours(tmp_path):
    """A horizontal slope from 0 to 255, 800 pixels wide, is at size 16 a slope of the same ends, up to half a step."""
    slope = np.repeat(np.linspace(0, 255, 800)[None, :, None], 800, axis=0).repeat(3, axis=2).astype(np.uint8)
    Image.fromarray(slope).save(tmp_path / "slope.jpg", quality=95)
    row = ImageFiles([tmp_path / "slope.jpg"], size=16)[:][0, 0, 8]
    torch.testing.assert_close(row, (torch.arange(16) + 0.5) / 8 - 1, atol=0.02, rtol=0)


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(40), b"\xff\xd8\xff" + bytes(9)])
def test_a_damaged_file_is_named_when_it_is_read(tmp_path, content):
    paths, pixels = write(tmp_path)
    paths[2].write_bytes(content)
    files = ImageFiles(paths, size=8)
    torch.testing.assert_close(files[[0, 1, 3]], scaled(pixels[[0, 1, 3]]))
    files.subset([2]).fingerprint()
    with pytest.raises(UserError, match=rf"{paths[2]} is not a readable image \(.*\): get a fresh copy of it or leave"):
        files[[0, 2]]


def test_a_truncated_file_is_damaged(tmp_path):
    (path,), _ = write(tmp_path, count=1, side=64)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UserError, match="is not a readable image"):
        ImageFiles([path], size=8)[:]


def test_a_missing_file_is_named(tmp_path):
    files = ImageFiles([tmp_path / "gone.png"], size=8)
    for use in (lambda: files[:], files.fingerprint):
        with pytest.raises(UserError, match=f"There is no file {tmp_path}/gone.png: put it there"):
            use()


def test_size_must_be_positive():
    with pytest.raises(UserError, match="The image size is 0: write 1 or more pixels"):
        ImageFiles([], size=0)


def test_fingerprint_knows_names_bytes_size_and_order_but_not_the_place(tmp_path):
    (tmp_path / "one" / "a").mkdir(parents=True)
    paths, _ = write(tmp_path / "one" / "a")
    files = ImageFiles(paths, size=8)
    first = files.fingerprint()
    assert files.fingerprint() == first
    assert ImageFiles(paths, size=9).fingerprint() != first
    assert files.subset(slice(3)).fingerprint() != first
    assert files.subset([1, 0, 2, 3]).fingerprint() != first
    (tmp_path / "one").rename(tmp_path / "two")
    moved = [tmp_path / "two" / "a" / path.name for path in paths]
    assert ImageFiles(moved, size=8).fingerprint() == first
    moved[0].write_bytes(moved[0].read_bytes() + b"\0")
    assert ImageFiles(moved, size=8).fingerprint() != first


def test_examples_stay_lazy_in_subsets_and_are_decoded_in_batches(tmp_path):
    paths, pixels = write(tmp_path)
    paths[0].write_bytes(b"damaged")
    lazy = Examples(ImageFiles(paths, size=8), torch.arange(4))
    part = lazy.subset(torch.tensor([0, 3, 1]))
    assert isinstance(part.inputs, ImageFiles)
    assert part.labels.tolist() == [0, 3, 1]
    batch = part.batch(torch.tensor([2, 1]))
    torch.testing.assert_close(batch.inputs, scaled(pixels[[1, 3]]))
    assert batch.labels.tolist() == [1, 3]


def test_batches_of_tensors_are_their_subsets():
    inputs = torch.arange(12.0).reshape(4, 3)
    examples, rows = Examples(inputs, torch.arange(4)), torch.tensor([3, 0])
    assert torch.equal(examples.batch(rows).inputs, inputs[rows])
    assert torch.equal(examples.subset(rows).inputs, take(inputs, rows))


def test_evaluation_reads_image_files_as_it_reads_tensors(tmp_path):
    torch.manual_seed(0)
    paths, pixels = write(tmp_path, count=5)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    files, labels = ImageFiles(paths, size=8), torch.tensor([0, 1, 2, 0, 1])
    in_memory = scale_images(pixels, signed=False)
    assert torch.equal(files[:], in_memory)
    assert evaluate(model, files, labels, batch_size=2) == evaluate(model, in_memory, labels, batch_size=2)
    probabilities = predict_probabilities(model, files, batch_size=2)
    torch.testing.assert_close(probabilities, predict_probabilities(model, in_memory))


def test_no_inputs_have_no_probabilities():
    assert predict_probabilities(torch.nn.Linear(4, 3), torch.zeros(0, 4)).shape == (0, 3)


def test_fingerprint_of_a_task_of_image_files(tmp_path):
    paths, _ = write(tmp_path)
    paths[0].write_bytes(b"damaged")  # no pixel is read

    def fingerprint(labels, size=8):
        examples = Examples(ImageFiles(paths, size), torch.tensor(labels))
        dataset = Dataset("mine", examples, examples, ("a", "b"), True, torch.arange(4))
        labels = NoisyLabels(examples.labels, None, 2, None)
        return NoisyTask(dataset, examples, examples, torch.arange(4), labels).fingerprint()

    assert fingerprint([0, 1, 0, 1]) == fingerprint([0, 1, 0, 1])
    assert len({fingerprint([0, 1, 0, 1]), fingerprint([0, 1, 1, 1]), fingerprint([0, 1, 0, 1], size=9)}) == 3


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["LA", "RGBA", "P"])
def test_what_is_transparent_is_white(tmp_path, mode, channels):
    """Half of 102 and half of white: (102 + 255) / 2 / 127.5 − 1 = 0.4; a palette's colour is gone altogether: 1."""
    if mode == "P":
        image, options = Image.new("P", (8, 8), 0), {"transparency": 0}
    else:
        image, options = Image.new(mode, (8, 8), (102, 128) if mode == "LA" else (102, 102, 102, 128)), {}
    image.save(tmp_path / "image.png", **options)
    decoded = ImageFiles([tmp_path / "image.png"], size=8, channels=channels)[:]
    assert decoded.shape == (1, channels, 8, 8)
    expected = 1.0 if mode == "P" else 0.4
    torch.testing.assert_close(decoded, torch.full_like(decoded, expected), atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [("I", 102, 102), ("I", 102 * 257, 102), ("I", 10**6, 255), ("F", 0.4, 102), ("F", 102.0, 102), ("F", -3.0, 0)],
)
def test_deep_greys_become_eight_bits(tmp_path, mode, value, expected):
    Image.new(mode, (8, 8), value).save(tmp_path / "image.tiff")
    pixels = (ImageFiles([tmp_path / "image.tiff"], size=8, channels=1)[:] + 1) * 127.5
    torch.testing.assert_close(pixels, torch.full_like(pixels, float(expected)), atol=0.5, rtol=0)


@pytest.mark.parametrize("orientation", [3, 6])
def test_turned_pictures_fill_a_rectangle(tmp_path, orientation):
    pixels = RANDOM.integers(0, 256, (6, 10, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    files = ImageFiles([tmp_path / "turned.png"], size=expected.shape[:2])
    torch.testing.assert_close(files[[0]], scaled(expected[None]))


def test_encoded_images_in_memory(tmp_path):
    paths, pixels = write(tmp_path)
    files = ImageFiles([paths[0].read_bytes(), paths[1], b"damaged"], size=8)
    torch.testing.assert_close(files[[0, 1]], scaled(pixels[:2]))
    assert files.paths == ["Image 0", str(paths[1]), "Image 2"]
    with pytest.raises(UserError, match="Image 2 is not a readable image"):
        files[[2]]
    assert files.subset([0]).fingerprint() != files.subset([2]).fingerprint()
    found = list(files.check())
    assert [reason is None for reason, _ in found] == [True, True, False]
    assert found[0][1] != found[1][1]
