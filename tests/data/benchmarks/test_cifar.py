import io
import os
import pickle
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet, table

from karat.data.benchmarks.cifar import CIFAR100_CLASSES
from karat.data.datasets import load_dataset
from karat.errors import UserError

RANDOM = np.random.default_rng(0)
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


def old_pickle(value):
    """Write a pickle as Python 2 wrote CIFAR's: strings of bytes, and arrays by numpy's old names."""

    def put(value):
        if isinstance(value, str | bytes):
            raw = value.encode("latin1") if isinstance(value, str) else value
            return b"T" + struct.pack("<i", len(raw)) + raw
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(map(put, value)) + b"e"
        if isinstance(value, dict):
            return b"}(" + b"".join(put(key) + put(item) for key, item in value.items()) + b"u"
        dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"
        shape = b"(" + b"".join(map(put, value.shape)) + b"t"
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        return empty + b"(K\x01" + shape + dtype + b"\x89" + put(value.tobytes()) + b"tb"

    return b"\x80\x02" + put(value) + b"."


WRITERS = {
    "python 2": old_pickle,
    "protocol 2": lambda value: pickle.dumps(value, protocol=2),
    "protocol 4": lambda value: pickle.dumps(value, protocol=4),
}


def write_python_version(root, name, write=old_pickle):
    """Write all files of the python version, two images each; return the train images and labels."""
    folder = root / FOLDERS[name]
    folder.mkdir()
    trains = [f"data_batch_{number}" for number in range(1, 6)] if name == "cifar10" else ["train"]
    tests, key = ("test_batch", "labels") if name == "cifar10" else ("test", "fine_labels")
    images, labels = [], []
    for number, file in enumerate([*trains, tests]):
        data = RANDOM.integers(0, 256, (2, 3072), dtype=np.uint8)
        content = {"data": data, key: [number, 9], "filenames": ["a.png", "b.png"]}
        (folder / file).write_bytes(write(content))
        images.append(data)
        labels += [number, 9]
    meta = {"label_names": [f"class {number}" for number in range(10)]}
    if name == "cifar100":
        meta = {"fine_label_names": [f"class {number}" for number in range(100)], "coarse_label_names": ["all"]}
    (folder / ("batches.meta" if name == "cifar10" else "meta")).write_bytes(write(meta))
    return np.concatenate(images[:-1]).reshape(-1, 3, 32, 32), labels[:-2]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("name", FOLDERS)
def test_python_version(tmp_path, name, write):
    images, labels = write_python_version(tmp_path, name, write)
    cifar = load_dataset(name, tmp_path)
    torch.testing.assert_close(cifar.train.inputs, torch.tensor(images / 127.5 - 1, dtype=torch.float32))
    assert cifar.train.labels.tolist() == labels
    assert cifar.test.labels.tolist() == [len(labels) // 2, 9]
    assert cifar.classes[7] == "class 7"
    assert len(cifar.classes) == {"cifar10": 10, "cifar100": 100}[name]
    assert (cifar.class_map is not None) == (name == "cifar10")
    assert cifar.flip
    assert cifar.curated


def test_cifar100_from_parquet(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32)).save(buffer, format="PNG")
    for part in ("train", "test"):
        cells = {"image": [buffer.getvalue()] * 2, "label": [99, 23]}
        parquet.write_table(table(cells), tmp_path / f"cifar100_{part}.parquet")
    cifar = load_dataset("cifar100", tmp_path)
    assert [cifar.classes[label] for label in cifar.train.labels] == ["worm", "cloud"]
    assert cifar.train.inputs.shape == (2, 3, 32, 32)
    assert len(set(CIFAR100_CLASSES)) == 100


@pytest.mark.parametrize("file", ["data_batch_3", "test_batch", "batches.meta"])
def test_what_the_folder_misses_is_named(tmp_path, file):
    write_python_version(tmp_path, "cifar10")
    missing = tmp_path / "cifar-10-batches-py" / file
    missing.unlink()
    with pytest.raises(UserError, match=f"There is no file {missing}: unpack the python version from"):
        load_dataset("cifar10", tmp_path)


def test_neither_form(tmp_path):
    with pytest.raises(
        UserError, match=r"cifar100_train.parquet: put it there, .* or unpack .*, cifar-100-python, into"
    ):
        load_dataset("cifar100", tmp_path)


class Call:
    """Pickle as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("function", [os.system, eval, np.load, getattr], ids=lambda function: function.__name__)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_something_is_refused_and_not_run(tmp_path, function, protocol):
    write_python_version(tmp_path, "cifar10")
    mark = tmp_path / "run"
    arguments = {
        os.system: (f"touch {mark}",),
        eval: (f"open({str(mark)!r}, 'w')",),
        np.load: (str(mark),),
        getattr: ("", "join"),
    }[function]
    file = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    file.write_bytes(pickle.dumps({"data": Call(function, *arguments), "labels": []}, protocol=protocol))
    with pytest.raises(UserError, match=rf"{file} is refused: the file asks for \S+, which no CIFAR file does: do not"):
        load_dataset("cifar10", tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        old_pickle({"data": np.zeros((1, 3072), np.uint8), "labels": [1]})[:-50],
        pickle.dumps([1]),
        pickle.dumps({"data": np.zeros((1, 3072)), "labels": [1]}, protocol=4),  # floats
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [1, 2]}, protocol=4),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["1"]}, protocol=4),
        pickle.dumps({"data": np.zeros((1, 3071), np.uint8), "labels": [1]}, protocol=4),
        pickle.dumps({"labels": [1]}),
        b"\x80\x02cnumpy\nndarray\nK\x00\x85R.",  # calls the array type itself
        b"\x80\x02c_codecs\nencode\nU\x01aU\x04zlib\x86R.",  # another encoding
    ],
)
def test_damaged_batches(tmp_path, content):
    write_python_version(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(content)
    with pytest.raises(UserError, match=r"data_batch_2 .*: get a fresh copy of it\."):
        load_dataset("cifar10", tmp_path)


def test_damaged_names(tmp_path):
    write_python_version(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(pickle.dumps({"label_names": [1]}))
    with pytest.raises(UserError, match=r"batches.meta does not hold label_names: get a fresh copy"):
        load_dataset("cifar10", tmp_path)


def install(monkeypatch, **makers):
    """Let a stand-in for torchvision be imported."""
    datasets = SimpleNamespace(**makers)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(datasets=datasets))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)


@pytest.mark.parametrize("name", FOLDERS)
def test_download_when_asked(tmp_path, monkeypatch, name):
    asked = []

    def fetch(root, download):
        asked.append((root, download))
        write_python_version(tmp_path, name)

    install(monkeypatch, **{name.upper(): fetch})
    with pytest.raises(UserError, match="There is no file"):
        load_dataset(name, tmp_path)
    assert not asked
    for _ in range(2):  # the second time the files are there
        load_dataset(name, tmp_path, download=True)
    assert asked == [(str(tmp_path), True)]


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("corrupted")])
def test_a_failed_download(tmp_path, monkeypatch, error):
    def fetch(root, download):
        raise error

    install(monkeypatch, CIFAR10=fetch)
    with pytest.raises(
        UserError, match=rf"Downloading cifar10 failed \({error}\): try again, or put cifar-10-batches-py"
    ):
        load_dataset("cifar10", tmp_path, download=True)


def test_download_without_torchvision(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(UserError, match="Downloading cifar10 needs torchvision: pip install torchvision, or put"):
        load_dataset("cifar10", tmp_path, download=True)
