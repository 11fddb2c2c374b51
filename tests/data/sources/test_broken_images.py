"""Every kind of broken image: all are listed at once, with the reason, or skipped."""

import os
import re
import struct
import zlib

import pytest
from making import PARTS, encoded, picture, write_folder
from PIL import Image

from karat.data.datasets import load_data
from karat.data.settings import DataSettings
from karat.data.sources.problems import BadImages
from karat.errors import UserError


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def bomb():
    """A PNG of a few bytes that would be 60,000 x 60,000 pixels."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    )


BROKEN = {
    "bomb.png": (bomb(), "it has more than 178 million pixels"),
    "cut.bmp": (encoded(picture(), "BMP")[:200], "truncated"),
    "cut.gif": (encoded(picture(64, 64), "GIF")[:1200], "truncated|broken|unrecognized"),
    "cut.jpg": (encoded(picture(64, 64), "JPEG")[:-1500], "truncated"),
    "cut.png": (encoded(picture(64, 64))[:3000], "truncated"),
    "cut.tiff": (encoded(picture(64, 64), "TIFF")[:2000], "."),
    "cut.webp": (encoded(picture(64, 64), "WEBP")[:-200], "."),
    "empty.png": (b"", "the file is empty"),
    "page.jpg": (b"<!DOCTYPE html><html>404</html>", "it is a web page or a drawing"),
    "pointer.png": (b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"),
    "start.png": (b"\x89PNG\r\n\x1a\n" + bytes(40), "."),
    "text.JPG": (b"hello", "it is not in a format of images"),
}


@pytest.fixture
def broken(tmp_path):
    root = write_folder(tmp_path / "mine", PARTS)
    for name, (content, _) in BROKEN.items():
        (tmp_path / "mine/train/cat" / name).write_bytes(content)
    os.symlink("nowhere.png", tmp_path / "mine/train/cat/dangling.png")
    return root


def test_all_are_listed_at_once_with_their_reasons(broken):
    with pytest.raises(BadImages, match=r"13 images cannot be read: put fresh copies .* --on-bad-image skip") as caught:
        load_data(DataSettings(broken))
    reasons = dict(caught.value.images)
    expected = {f"train/cat/{name}": reason for name, (_, reason) in BROKEN.items()}
    assert reasons.keys() == {*expected, "train/cat/dangling.png"}
    for name, reason in reasons.items():
        assert re.search(expected.get(name, "there is no such file"), reason), name
        assert f"{name}: {reason}" in str(caught.value)
        assert "0x" not in reason  # no Python object

    with pytest.raises(BadImages) as caught:
        load_data(DataSettings(broken))
    reasons = dict(caught.value.images)
    for name, (_, reason) in BROKEN.items():
        assert re.search(reason, reasons[f"train/cat/{name}"]), name


def test_they_are_skipped_if_asked(broken):
    mine = load_data(DataSettings(broken, on_bad_image="skip"))
    assert len(mine.skipped) == len(BROKEN) + 1
    assert len(mine.train) == 11  # as in PARTS
    assert not {skipped.name for skipped in mine.skipped} & set(mine.names)
    assert len(mine.train.inputs[:]) == 11
    assert any("13 images cannot be read: training goes on without" in note for note in mine.notes)


def test_a_long_list_is_cut_but_known_in_full(tmp_path):
    root = write_folder(tmp_path / "mine", PARTS)
    for number in range(30):
        (tmp_path / "mine/train/cat" / f"x{number}.png").write_bytes(b"")
    with pytest.raises(BadImages, match="… and 10 more") as caught:
        load_data(DataSettings(root))
    assert len(caught.value.images) == 30
    assert str(caught.value).count("the file is empty") == 20


def test_other_problems_are_said_with_them(broken, tmp_path):
    write_folder(tmp_path / "mine", {"test/eel": 1})
    with pytest.raises(BadImages, match=r"2 problems:\n  1. Only test rows have .*\n  2. 13 images cannot be read"):
        load_data(DataSettings(broken))


def test_a_class_that_lost_all_its_images_is_missed(tmp_path):
    root = write_folder(tmp_path / "mine", PARTS)
    (tmp_path / "mine/trusted/cat/0.png").write_bytes(b"")
    notes = load_data(DataSettings(root, on_bad_image="skip")).notes
    assert "1 class has no trusted example (cat): better verify at least one label of each." in notes


def test_a_limit_is_applied_before_images_are_read(tmp_path, monkeypatch):
    """Six train rows: three of each class, the trusted ones first, so that 2 of 4 cats and 1 of 4 dogs are noisy."""
    from karat.data import images as module

    root = write_folder(tmp_path / "mine", PARTS)
    read = []
    decode = module.decode
    monkeypatch.setattr(module, "decode", lambda content, shape: read.append(1) or decode(content, shape))
    mine = load_data(DataSettings(root, limit=6))
    assert mine.trusted.sum() == 3
    assert mine.train.labels.tolist().count(0) == 3
    assert len(read) == 6 + 3  # and the test part


def test_equal_images(tmp_path):
    root = write_folder(tmp_path / "mine", PARTS)
    mine = tmp_path / "mine"

    def copy(source, target):
        (mine / target).write_bytes((mine / source).read_bytes())

    copy("train/cat/0.png", "train/dog/same.png")
    copy("train/cat/1.png", "test/cat/seen.png")
    notes = "\n".join(load_data(DataSettings(root)).notes)
    assert "1 image is in the train rows under two labels (train/cat/0.png as 'cat' = train/dog/same.png as" in notes
    assert "1 noisy image is also in the test part (train/cat/1.png): the test accuracy will flatter" in notes
    copy("trusted/cat/0.png", "test/cat/leak.png")
    copy("trusted/dog/0.png", "trusted/cat/contradiction.png")
    with pytest.raises(UserError) as caught:
        load_data(DataSettings(root))
    assert "1 trusted image is also in the test part (trusted/cat/0.png): what is learned from" in str(caught.value)
    assert "1 image is trusted under two labels (trusted/cat/contradiction.png as 'cat' = trusted/dog" in str(
        caught.value
    )


def test_odd_images_are_no_broken_ones(tmp_path):
    """Modes, one pixel, absurd proportions, animations: what a viewer shows is readable."""
    root = write_folder(tmp_path / "mine", PARTS)
    cats = tmp_path / "mine/train/cat"
    frames = [picture().convert("P") for _ in range(3)]
    frames[0].save(cats / "moving.gif", save_all=True, append_images=frames[1:])
    picture(1, 1).save(cats / "dot.png")
    picture(1, 3000).save(cats / "line.png")
    Image.new("I", (8, 8), 70_000).save(cats / "deep.tiff")
    Image.new("F", (8, 8), 0.5).save(cats / "float.tiff")
    picture(channels=4).save(cats / "layer.webp")
    picture().convert("YCbCr").save(cats / "video.jpg")
    assert len(load_data(DataSettings(root)).train) == 11 + 7
