"""Shards: what is found in tar and Parquet files, how it is read, and what is said of files that are damaged."""

import json
import sys
import tarfile
from pathlib import Path
from threading import Thread

import fsspec
import pandas as pd
import pytest
import torch
from making import encoded, picture, tar_rows, write_table, write_tar
from pyarrow import parquet, table

from karat.data import blocks as blocks_module
from karat.data.blocks import Blocks, KeptBlocks, Stored
from karat.data.datasets import load_data
from karat.data.images import ImageFiles
from karat.data.samplers import ShuffledStream, block_order
from karat.data.schema import Schema
from karat.data.settings import DataSettings
from karat.data.sources import parquet_files, tar_files
from karat.data.sources.new_data import read_new_data
from karat.data.sources.problems import BadImages
from karat.data.sources.shards import is_shards
from karat.data.task import make_task
from karat.errors import UserError
from karat.files.addresses import PlacedFile, list_files

LABELS = ["cat", "dog"] * 3


def dataset_of(name, **settings):
    return load_data(DataSettings(str(name), **settings))


def write_parquet(file, labels=LABELS, row_group_size=2, struct=False, **columns):
    """Write pictures and labels in row groups of two."""
    images = [encoded(picture()) for _ in labels]
    cells = [{"bytes": image, "path": f"{row}.png"} for row, image in enumerate(images)] if struct else images
    parquet.write_table(table({"image": cells, "label": list(labels), **columns}), file, row_group_size=row_group_size)
    return images


def decoded(images):
    return ImageFiles(images, 16)[:]


def test_tar_files_are_rows_in_order(tmp_path):
    members = tar_rows(LABELS)
    write_tar(
        tmp_path / "a.tar", dict(list(members.items())[::-1])
    )  # in any order: the key tells what belongs together
    more = tar_rows(LABELS, start=6)
    write_tar(tmp_path / "b.tar", {f"deep/{name}": content for name, content in more.items()})
    mine = dataset_of(tmp_path)
    assert mine.classes == ("cat", "dog")
    assert mine.names == (*(f"a.tar/{key}" for key in range(5, -1, -1)), *(f"b.tar/deep/{key}" for key in range(6, 12)))
    assert mine.train.labels.tolist() == [1, 0] * 3 + [0, 1] * 3
    images = [members[f"{key}.png"] for key in range(5, -1, -1)] + [more[f"{key}.png"] for key in range(6, 12)]
    torch.testing.assert_close(mine.train.inputs[:], decoded(images))
    assert mine.train.inputs.blocks() is None  # each is read at its place


def test_objects_say_label_part_and_id(tmp_path):
    """An object says more than a .cls beside it; what it does not say is in the .cls."""
    said = [{"label": "dog", "trusted": True}, {"label": 7, "caption": "x" * 99}, {"split": "test"}, {"trusted": "no"}]
    members = tar_rows(["cat", "7", "cat", "cat"]) | {f"{key}.json": json.dumps(row) for key, row in enumerate(said)}
    members |= {"0.txt": "", "README": ""}
    mine = dataset_of(write_tar(tmp_path / "a.tar", members))
    assert mine.classes == ("7", "cat", "dog")
    assert mine.names == ("a.tar/0", "a.tar/1", "a.tar/3")
    assert mine.test_names == ("a.tar/2",)
    assert mine.trusted.tolist() == [True, False, False]
    assert "Not used, since they are no images and no labels: files on ., .txt in shards." in mine.notes
    for key, row in enumerate(said):
        members[f"{key}.json"] = json.dumps({**row, "id": f"mine {key}", "label": LABELS[key]})
    assert dataset_of(write_tar(tmp_path / "a.tar", members)).names == ("mine 0", "mine 1", "mine 3")
    members = tar_rows([]) | {"0.png": members["0.png"], "0.json": '{"kind": "cat"}'}
    assert read_new_data(Schema((3, 8, 8)), write_tar(tmp_path / "new.tar", members)).names == ("new.tar/0",)


def test_the_name_of_a_shard_says_its_part(tmp_path):
    for name in ("test-0", "train-0", "train-1", "Trusted_0"):
        write_tar(tmp_path / f"{name}.tar", tar_rows(LABELS))
    mine = dataset_of(tmp_path)
    assert [mine.names[row].split("/")[0] for row in (0, 6, 12)] == ["train-0.tar", "train-1.tar", "Trusted_0.tar"]
    assert mine.trusted.tolist() == [False] * 12 + [True] * 6
    assert len(mine.test) == 6
    assert mine.rows.tolist() == list(range(18))


@pytest.mark.parametrize("struct", [False, True])
def test_parquet_files_are_rows_in_order(tmp_path, struct):
    images = write_parquet(tmp_path / "a.parquet", struct=struct) + write_parquet(tmp_path / "b.parquet", struct=struct)
    mine = dataset_of(tmp_path / "*.parquet")
    ending = ".png" if struct else ""
    assert mine.names == tuple(f"{shard}.parquet/{row}{ending}" for shard in "ab" for row in range(6))
    assert mine.train.labels.tolist() == [0, 1] * 6
    torch.testing.assert_close(mine.train.inputs[torch.tensor([11, 0, 5])], decoded([images[11], images[0], images[5]]))


def test_features_in_parquet_files_are_those_of_one_table(tmp_path):
    """Sizes 1 to 4: mean 2.5, deviation the square root of 1.25."""
    (tmp_path / "s").mkdir()
    for shard, sizes in (("a", [1.0, 2.0]), ("b", [3.0, 4.0])):
        write_table(tmp_path / f"s/{shard}.parquet", pd.DataFrame({"size": sizes, "label": ["cat", "dog"]}))
    mine = dataset_of(tmp_path / "s")
    assert mine.names == ("a.parquet/0", "a.parquet/1", "b.parquet/0", "b.parquet/1")
    expected = (torch.tensor([1.0, 2.0, 3.0, 4.0]) - 2.5) / 1.25**0.5
    torch.testing.assert_close(mine.train.inputs, expected[:, None])
    new = read_new_data(mine.schema, tmp_path / "s", mine.classes)
    torch.testing.assert_close(new.inputs, mine.train.inputs)
    assert new.labels.tolist() == [0, 1, 0, 1]


def test_row_groups_are_read_when_they_are_needed(tmp_path, monkeypatch):
    """Six row groups of which one stays in memory: both images of the second are one reading, and nothing else is."""
    images = write_parquet(tmp_path / "a.parquet") + write_parquet(tmp_path / "b.parquet")
    monkeypatch.setattr(blocks_module, "KEPT_BYTES", 1)
    inputs = dataset_of(tmp_path, image_size=16).train.inputs
    inputs._cache.clear()
    loads, load = [], parquet_files.ParquetImages._load
    monkeypatch.setattr(
        parquet_files.ParquetImages, "_load", lambda self, group: loads.append(group) or load(self, group)
    )
    torch.testing.assert_close(inputs[[2, 3]], decoded(images[2:4]))
    assert loads == [1]
    found = inputs.blocks()
    assert found.numbers.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert found.together == 1


@pytest.fixture
def far():
    """Return a folder of a file system that is not this machine's."""
    system = fsspec.filesystem("memory")
    system.mkdir("/far")
    yield system
    system.rm("/far", recursive=True)


def test_addresses_give_what_files_here_give(tmp_path, far, monkeypatch):
    """Blocks of two images and more (an image has some 850 bytes): each is one message, and all images are the same."""
    (tmp_path / "s").mkdir()
    write_tar(tmp_path / "s/a.tar", tar_rows(LABELS))
    write_parquet(tmp_path / "s/b.parquet")
    for name in ("a.tar", "b.parquet"):
        far.pipe_file(f"/far/{name}", (tmp_path / "s" / name).read_bytes())
    monkeypatch.setattr(tar_files, "BLOCK_BYTES", 2_000)
    here = dataset_of(tmp_path / "s")
    for name in ("memory://far", "memory://far/*", f"file://{tmp_path}/s"):
        there = dataset_of(name)
        assert there.names == here.names
        there.train.inputs._cache.clear()
        torch.testing.assert_close(there.train.inputs[:], here.train.inputs[:])
    there = dataset_of("memory://far/a.tar", trusted="memory://far/b.parquet")
    assert there.trusted.tolist() == [False] * 6 + [True] * 6
    assert there.names[6] == "far/b.parquet/0"


def test_far_blocks_are_ranges_of_the_file(tmp_path, monkeypatch):
    file = write_tar(tmp_path / "a.tar", tar_rows(LABELS))
    monkeypatch.setattr(tar_files, "BLOCK_BYTES", 4_000)
    (placed,) = list_files(file, (".tar",))
    asked = []

    class Far:
        def open(self, path, mode):
            return open(path, mode)

        def cat_file(self, path, start, end):
            asked.append((start, end))
            with open(path, "rb") as opened:
                return opened.read()[start:end]

    found, _ = tar_files.read_tar(PlacedFile("a.tar", placed.path, placed.size, Far()), DataSettings(), KeptBlocks())
    images = [found.encoded["image"].image(row, "") for row in range(6)]
    here, _ = tar_files.read_tar(placed, DataSettings(), KeptBlocks())
    assert not asked
    assert [image.read() for image in images] == [here.encoded["image"].image(row, "").read() for row in range(6)]
    assert len(asked) == len({image.block.key for image in images}) < 6
    assert all(start < end < placed.size for start, end in asked)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere://bucket/a.tar", "cannot be read (Protocol not known: nowhere): check the address"),
        ("memory://nothing", "memory://nothing cannot be read (/nothing): check the address, and your access"),
        ("none/*.tar", "There are no shards none/*.tar: give a folder or a pattern, such as 'shards/*.tar',"),
        ("none.tar", "There are no shards none.tar"),
    ],
)
def test_shards_that_are_nowhere(name, message):
    with pytest.raises(UserError) as caught:
        dataset_of(name)
    assert message in str(caught.value)


def test_without_fsspec(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(
        UserError, match=r"is an address, which fsspec reads: install it with pip install karat\[remote\]"
    ):
        dataset_of("s3://bucket/data")


def link(name, kind=tarfile.SYMTYPE):
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, "/etc/passwd"
    return header


def whole():
    return tar_rows(LABELS)


DAMAGED = {
    "a link": ({"x.png": link("x.png")}, "x.png in it is a link, a device or the like: put the file itself"),
    "a hard link": ({"x.png": link("x.png", tarfile.LNKTYPE)}, "x.png in it is a link"),
    "a device": ({"x.png": link("x.png", tarfile.CHRTYPE)}, "x.png in it is a link, a device"),
    "outside": ({"../x.png": b""}, "it names a file outside of it (../x.png): write names that stay inside"),
    "outside, absolute": ({"/x.png": b""}, "it names a file outside of it (/x.png)"),
    "two images": ({"0.jpg": b""}, "two images in it have one key (0.png, 0.jpg): give each a key of its own"),
    "nothing": (None, "it has no images, such as key.jpg beside key.cls"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_tar_files_are_named_and_skipped(tmp_path, kind):
    write_tar(tmp_path / "a.tar", whole())
    members, reason = DAMAGED[kind]
    write_tar(tmp_path / "b.tar", {} if members is None else whole() | members)
    check_skipped(tmp_path, "b.tar", reason)


def check_skipped(folder, name, reason):
    """One sentence with the name and the reason, or all other rows."""
    with pytest.raises(BadImages) as caught:
        dataset_of(folder)
    assert "1 file cannot be read: put fresh copies in their place, or go on without" in str(caught.value)
    assert f"{name}: {reason}" in str(caught.value)
    mine = dataset_of(folder, on_bad_image="skip")
    assert mine.names == tuple(f"a.tar/{key}" for key in range(6))
    assert [skipped.name for skipped in mine.skipped] == [name]
    assert "1 file cannot be read: training goes on without." in mine.notes


@pytest.mark.parametrize(("kept", "behind"), [(100, b""), (700, b""), (10_240, b""), (10_240, b"x" * 512)])
def test_tar_files_that_are_cut_off(tmp_path, kept, behind):
    """In a header, in an image, and where the end mark should be: behind two members of 512 + 4,608 bytes."""
    write_tar(tmp_path / "a.tar", whole())
    content = Path(write_tar(tmp_path / "b.tar", {"0.png": bytes(4_608), "1.png": bytes(4_608)})).read_bytes()
    (tmp_path / "b.tar").write_bytes(content[:kept] + behind)
    check_skipped(tmp_path, "b.tar", "it is damaged or no tar file (")


def test_a_member_that_points_back(tmp_path):
    """A size below 0 leads to a header that was read before; tarfile itself may never end."""
    write_tar(tmp_path / "a.tar", whole())
    header = tarfile.TarInfo("x.png")
    header.size = -1_024
    (tmp_path / "b.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) * 3 + bytes(10_240))
    check_skipped(tmp_path, "b.tar", "it is damaged or no tar file (the file behind byte 0 has no size)")


def test_large_row_groups_are_said(tmp_path, monkeypatch):
    write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(parquet_files, "KEPT_BYTES", 2_000)
    for name in ("a.parquet", "*.parquet"):
        assert any("row_group_size=1000" in note for note in dataset_of(tmp_path / name).notes)


def test_a_damaged_header_in_the_middle(tmp_path):
    """tarfile takes it for the end: the rows behind it would be missing without a word."""
    write_tar(tmp_path / "a.tar", whole())
    content = bytearray((tmp_path / "a.tar").read_bytes())
    place = content.index(b"3.png\0")
    content[place : place + 100] = b"\xff" * 100
    (tmp_path / "b.tar").write_bytes(content)
    check_skipped(
        tmp_path, "b.tar", f"it is damaged or no tar file (no further file and no end mark at byte {place:,})"
    )


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"9.png": b"damaged"}, "it is not in a format of images that Pillow can read"),
        ({"9.png": b""}, "the file is empty"),
        ({"9.cls": b"\xff"}, "its .cls is no label of text in UTF-8 ("),
        ({"9.json": "[1]"}, "its .json is no JSON object with a label (it begins with no brace)"),
        ({"9.json": "{"}, "its .json is no JSON object with a label ("),
        ({"9.json": '{"label": [1]}'}, "its .json is no JSON object with a label (label is no text and no number)"),
        ({"9.cls": " " * 2_000_000}, "its .cls is no label of text in UTF-8 (it has more than 1 MB)"),
    ],
)
def test_damaged_rows_are_named_and_skipped(tmp_path, members, reason):
    rest = {"9.png": encoded(picture()), "9.cls": "cat"}
    file = write_tar(tmp_path / "a.tar", whole() | rest | members)
    with pytest.raises(BadImages) as caught:
        dataset_of(file)
    assert f"a.tar/9: {reason}" in str(caught.value)
    assert dataset_of(file, on_bad_image="skip").names == tuple(f"a.tar/{key}" for key in range(6))


def test_a_shard_of_damaged_rows_alone(tmp_path):
    write_tar(tmp_path / "a.tar", whole())
    write_tar(tmp_path / "b.tar", tar_rows(["cat"]) | {"0.cls": b"\xff"})
    check_skipped(tmp_path, "b.tar/0", "its .cls is no label of text in UTF-8")


def test_labels_that_are_missing_or_alone(tmp_path):
    file = write_tar(tmp_path / "a.tar", whole() | {"8.png": encoded(picture())})
    with pytest.raises(UserError, match=r"1 row has no label \(a.tar/8\): write one, or take the row out"):
        dataset_of(file)
    file = write_tar(tmp_path / "a.tar", whole() | {"8.cls": "cat"})
    with pytest.raises(UserError, match=r"a.tar/8: there is no image beside its label"):
        dataset_of(file)
    with tarfile.open(file, "a") as archive:
        archive.addfile(tarfile.TarInfo("0.cls"))
    with pytest.raises(UserError, match=r"0.cls is in it twice: give each key one label"):
        dataset_of(file)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"image": [b"1"], "class": ["cat"]}, "b.parquet has no column 'label'. Its columns are class, image"),
        ({"size": [1.5], "label": ["cat"]}, "a.parquet has images and b.parquet has features: give both the same kind"),
        ({"pixels": [b"1"], "label": ["cat"]}, "write --data.path_column pixels if they are images"),
        ({"label": ["cat"]}, "b.parquet has nothing to learn from: add a column path or image with the images"),
    ],
)
def test_parquet_files_with_another_schema(tmp_path, frame, message):
    write_parquet(tmp_path / "a.parquet")
    write_table(tmp_path / "b.parquet", pd.DataFrame(frame))
    with pytest.raises(UserError) as caught:
        dataset_of(tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"no", "Parquet"), (None, "it has no rows"), ("cut", "row group 2 of b.parquet")]
)
def test_damaged_parquet_files_are_named_and_skipped(tmp_path, content, reason):
    write_tar(tmp_path / "a.tar", whole())
    write_parquet(tmp_path / "b.parquet", labels=LABELS if content == "cut" else [])
    if content == b"no":
        (tmp_path / "b.parquet").write_bytes(content)
    elif content == "cut":  # a page in the last row group
        file = bytearray((tmp_path / "b.parquet").read_bytes())
        column = parquet.ParquetFile(tmp_path / "b.parquet").metadata.row_group(2).column(0)
        start = column.dictionary_page_offset or column.data_page_offset
        file[start : start + 20] = b"\xff" * 20
        (tmp_path / "b.parquet").write_bytes(file)
    with pytest.raises(BadImages, match=reason):
        dataset_of(tmp_path)
    kept = dataset_of(tmp_path, on_bad_image="skip").names
    assert kept == tuple(f"a.tar/{key}" for key in range(6)) + tuple(
        f"b.parquet/{row}" for row in range(4 * (content == "cut"))
    )


def test_a_shard_that_changes_while_it_is_read(tmp_path):
    file = tmp_path / "a.tar"
    inputs = dataset_of(write_tar(file, whole()), image_size=8).train.inputs
    inputs._cache.clear()
    file.write_bytes(file.read_bytes()[:2_000])
    with pytest.raises(UserError, match=r"a.tar/5 is not a readable image \(its file cannot be read: a.tar ends after"):
        inputs[[5]]
    file.unlink()
    with pytest.raises(UserError, match=r"a.tar/5 is not a readable image \(its file cannot be read: No such file"):
        inputs[[5]]


def test_the_fingerprint_is_that_of_names_and_sizes(tmp_path):
    """Shards may move; a row more, or an image of another size, makes other data of them."""
    members, found = whole(), []
    for number, change in enumerate(
        ({}, {}, {"5.png": encoded(picture(24))}, {"6.png": encoded(picture()), "6.cls": "cat"})
    ):
        (tmp_path / str(number)).mkdir()
        write_tar(tmp_path / str(number) / "a.tar", members | change)
        found.append(dataset_of(tmp_path / str(number), image_size=16).train.inputs.fingerprint())
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_block_order_holds_every_row_once_and_few_blocks_at_a_time():
    """Ten blocks of ten rows, three at a time: 30 rows of three blocks, then of three others."""
    blocks = Blocks(torch.arange(100) // 10, together=3)
    order = block_order(blocks, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(100))
    seen = [set(blocks.numbers[some].tolist()) for some in order.split(30)]
    assert [len(some) for some in seen] == [3, 3, 3, 1]
    assert set.union(*seen) == set(range(10))
    assert blocks.numbers[order[:30]].tolist() != sorted(blocks.numbers[order[:30]].tolist())


def test_a_stream_in_blocks_goes_on_where_it_was():
    def stream(seed):
        numbers = torch.arange(40) // 4
        return ShuffledStream(torch.arange(40), torch.Generator().manual_seed(seed), Blocks(numbers, together=2))

    first = stream(1)
    first.next(33)
    state = first.state_dict()
    expected = [first.next(16).tolist() for _ in range(5)]
    second = stream(2)
    second.load_state_dict(state)
    assert [second.next(16).tolist() for _ in range(5)] == expected


def test_threads_wait_for_one_reading_and_failures_are_forgotten():
    kept, readings = KeptBlocks(), []

    def load():
        readings.append(1)
        if len(readings) == 1:
            raise OSError("gone")
        return "content"

    with pytest.raises(OSError, match="gone"):
        kept.get("a", 1, load)
    threads = [Thread(target=kept.get, args=("a", 1, load)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(readings) == 2


def test_trusted_images_have_a_cache_of_their_own(tmp_path):
    members = whole() | {"0.json": '{"trusted": true}'}
    mine = dataset_of(write_tar(tmp_path / "a.tar", members))
    inputs = mine.train.inputs
    inputs._cache.clear()
    inputs._cache_places = 0
    trusted = make_task(mine).trusted.inputs
    trusted[:]
    (tmp_path / "a.tar").unlink()
    assert trusted[:].shape == (1, 3, 16, 16)
    assert not inputs._cache


@pytest.mark.parametrize(
    ("beside", "expected"),
    [("README.md", True), ("index.json", True), ("photo.png", False), ("note.txt", False), ("cats/", False)],
)
def test_what_lies_beside_shards_tells_whether_a_folder_is_one_of_shards(tmp_path, beside, expected):
    (tmp_path / "train-0.tar").touch()
    (tmp_path / beside).mkdir() if beside.endswith("/") else (tmp_path / beside).touch()
    assert is_shards(str(tmp_path)) is expected


def test_images_of_other_shards_with_the_same_names_and_sizes_are_told_apart():
    """Features of pretrained networks are found by these hashes: those of other images would be taken in silence."""
    one, other = (
        ImageFiles([Stored("a.tar/1", "3", lambda content=content: content)], 8) for content in (b"abc", b"xyz")
    )
    assert one.digests() != other.digests()


def test_an_unread_image_whose_shard_is_gone_is_named():
    def gone():
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(UserError, match=r"Cannot read a\.tar/1 \(No such file"):
        ImageFiles([Stored("a.tar/1", "3", gone)], 8).digests()
