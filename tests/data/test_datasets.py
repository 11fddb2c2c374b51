import gzip
import io
import struct

import numpy as np
import pytest
import torch
from PIL import Image
from pyarrow import parquet, table

from karat.data.benchmarks.cifar import CIFAR10_CLASSES
from karat.data.benchmarks.fashion_mnist import FASHION_MNIST_FOLDER
from karat.data.datasets import load_dataset
from karat.data.trusted import trusted_split
from karat.errors import UserError

RANDOM = np.random.default_rng(0)
LABELS = np.array([0, 1, 1, 0, 1, 0])


def save(file, **changes):
    """Write a small usable .npz file of vectors, with some arrays changed, or left out where None."""
    arrays = {
        "train_inputs": RANDOM.normal(5, 3, (6, 2)),
        "train_labels": LABELS,
        "test_inputs": RANDOM.normal(5, 3, (2, 2)),
        "test_labels": np.array([1, 0]),
    }
    np.savez(file, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return str(file)


def test_digits():
    digits = load_dataset("digits")
    assert digits.train.inputs.shape == (1300, 1, 12, 12)
    assert digits.test.inputs.shape == (497, 1, 12, 12)
    assert digits.train.inputs.dtype == torch.float32
    assert (digits.train.inputs.min(), digits.train.inputs.max()) == (-1, 1)
    frame = torch.ones(12, 12, dtype=torch.bool)
    frame[2:-2, 2:-2] = False
    assert (digits.train.inputs[:, 0, frame] == -1).all()
    assert torch.equal(digits.train.inputs * 8, (digits.train.inputs * 8).round())  # still the 16 grey levels
    assert digits.classes == tuple("0123456789")
    assert not digits.flip
    assert len(trusted_split(digits.train.labels, 10, torch.Generator())[1]) == 1200


@pytest.mark.parametrize(
    ("name", "train", "test", "features", "classes"),
    [("wine", 124, 54, 13, 3), ("breast_cancer", 398, 171, 30, 2)],
)
def test_vectors_are_standardised_by_the_train_part(name, train, test, features, classes):
    dataset = load_dataset(name)
    inputs = dataset.train.inputs
    assert inputs.shape == (train, features)
    assert dataset.test.inputs.shape == (test, features)
    assert len(dataset.classes) == classes
    torch.testing.assert_close(inputs.mean(dim=0), torch.zeros(features), atol=1e-5, rtol=0)
    torch.testing.assert_close(inputs.std(dim=0, correction=0), torch.ones(features))
    assert dataset.test.inputs.mean(dim=0).abs().max() > 1e-3  # the test part has a mean of its own


@pytest.mark.parametrize("name", ["digits", "wine", "breast_cancer"])
def test_split_is_stratified_and_the_same_for_every_seed(name):
    """A class count is a whole number next to its exact share: off by less than 1 in each part."""
    first, second = load_dataset(name, seed=0), load_dataset(name, seed=1)
    assert torch.equal(first.test.inputs, second.test.inputs)
    assert torch.equal(first.train.inputs, second.train.inputs)
    shares = [part.labels.bincount() / len(part) for part in (first.train, first.test)]
    rounding = 1 / len(first.train) + 1 / len(first.test)
    torch.testing.assert_close(*shares, atol=rounding, rtol=0)


def test_limit_is_balanced_and_seeded():
    small, same, other = (load_dataset("digits", seed=seed, limit=203) for seed in (0, 0, 1))
    counts = small.train.labels.bincount()
    assert counts.sum() == 203
    assert set(counts.tolist()) == {20, 21}
    assert torch.equal(small.train.inputs, same.train.inputs)
    assert not torch.equal(small.train.inputs, other.train.inputs)
    assert len(small.test) == 497


def test_limit_above_a_small_class_takes_more_of_the_others():
    counts = load_dataset("wine").train.labels.bincount()
    limit = int(3 * counts.min() + 2)
    assert load_dataset("wine", limit=limit).train.labels.bincount().min() == counts.min()
    assert len(load_dataset("wine", limit=limit).train) == limit
    assert len(load_dataset("wine", limit=10_000).train) == counts.sum()


def write_fashion(folder, packed):
    parts = {"train": RANDOM.integers(0, 256, (5, 28, 28)), "t10k": RANDOM.integers(0, 256, (3, 28, 28))}
    for part, images in parts.items():
        for name, values in (("images-idx3", images), ("labels-idx1", np.arange(len(images)) + 5)):
            header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}i", *values.shape)
            content = header + values.astype(np.uint8).tobytes()
            file = folder / f"{part}-{name}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(content) if packed else content)
    return parts["train"]


@pytest.mark.parametrize("packed", [False, True])
def test_fashion_mnist_from_a_folder(tmp_path, packed):
    images = write_fashion(tmp_path, packed)
    fashion = load_dataset("fashion_mnist", str(tmp_path))
    assert fashion.train.inputs.shape == (5, 1, 28, 28)
    expected = torch.tensor(images / 127.5 - 1, dtype=torch.float32).unsqueeze(1)
    torch.testing.assert_close(fashion.train.inputs, expected)
    assert fashion.train.labels.tolist() == [5, 6, 7, 8, 9]
    assert fashion.classes[9] == "Ankle boot"
    assert fashion.flip


def test_fashion_mnist_with_a_missing_file(tmp_path):
    write_fashion(tmp_path, packed=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    message = f"There is no file {tmp_path}/t10k-labels-idx1-ubyte.gz: install the Debian package .* or copy"
    with pytest.raises(UserError, match=message):
        load_dataset("fashion_mnist", tmp_path)


@pytest.mark.skipif(not FASHION_MNIST_FOLDER.exists(), reason="dataset-fashion-mnist is not installed")
def test_installed_fashion_mnist():
    fashion = load_dataset("fashion_mnist", limit=2000)
    assert fashion.train.labels.bincount().tolist() == [200] * 10
    assert fashion.test.labels.bincount().tolist() == [1000] * 10


def test_cifar10(tmp_path):
    images = RANDOM.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    cells = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, format="PNG")
        cells.append(buffer.getvalue())
    for part in ("train", "test"):
        parquet.write_table(table({"image": cells, "label": [9, 3, 5, 0]}), tmp_path / f"cifar10_{part}.parquet")
    cifar = load_dataset("cifar10", tmp_path)
    expected = torch.tensor(images / 127.5 - 1, dtype=torch.float32).permute(0, 3, 1, 2)
    torch.testing.assert_close(cifar.train.inputs, expected)
    assert [CIFAR10_CLASSES[label] for label in cifar.test.labels] == ["truck", "cat", "dog", "airplane"]
    assert cifar.flip


def test_cifar10_without_its_files(tmp_path):
    with pytest.raises(UserError, match=r"set the path to the folder with cifar10_train\.parquet and"):
        load_dataset("cifar10")
    with pytest.raises(UserError, match=f"There is no file {tmp_path}/cifar10_train.parquet: put it there"):
        load_dataset("cifar10", tmp_path)


def test_npz_vectors_with_string_labels(tmp_path):
    names = np.array(["no", "yes"])
    file = save(tmp_path / "mine.npz", train_labels=names[LABELS], test_labels=names[[1, 0]])
    mine = load_dataset(file)
    assert mine.name == "mine"
    assert mine.classes == ("no", "yes")
    assert mine.train.labels.tolist() == LABELS.tolist()
    assert mine.test.labels.tolist() == [1, 0]
    torch.testing.assert_close(mine.train.inputs.mean(dim=0), torch.zeros(2), atol=1e-6, rtol=0)


def test_npz_integer_labels_are_numbered_in_numeric_order(tmp_path):
    file = save(tmp_path / "mine.npz", train_labels=LABELS * 90 + 10, test_labels=np.array([100, 10]))
    mine = load_dataset(file)
    assert mine.classes == ("10", "100")
    assert mine.test.labels.tolist() == [1, 0]


@pytest.mark.parametrize("shape", [(8, 9), (8, 9, 3), (3, 8, 9), (1, 8, 9)])
@pytest.mark.parametrize("kind", ["uint8", "0 to 1", "-1 to 1"])
def test_npz_images(tmp_path, shape, kind):
    """Every form of the same pixels gives the same inputs, NCHW: pixel / 127.5 − 1."""
    pixels = RANDOM.integers(0, 256, (6, *shape), dtype=np.uint8)
    pixels.flat[0] = 0  # so that floats in [-1, 1] have a negative value
    form = {"uint8": lambda x: x, "0 to 1": lambda x: x / 255, "-1 to 1": lambda x: x / 127.5 - 1}[kind]
    mine = load_dataset(save(tmp_path / "mine.npz", train_inputs=form(pixels), test_inputs=form(pixels[:2])))
    expected = torch.tensor(pixels / 127.5 - 1, dtype=torch.float32)
    expected = {2: lambda x: x[:, None], 3: lambda x: x.movedim(-1, 1) if shape[-1] == 3 else x}[len(shape)](expected)
    torch.testing.assert_close(mine.train.inputs, expected)
    torch.testing.assert_close(mine.test.inputs, expected[:2])
    assert mine.train.inputs.is_contiguous()
    assert not mine.flip


def test_npz_without_a_test_part_and_with_ids(tmp_path):
    ids = np.array([f"a{number}" for number in range(6)])
    mine = load_dataset(save(tmp_path / "mine.npz", test_inputs=None, test_labels=None, ids=ids))
    assert len(mine.test) == 0
    assert mine.test.inputs.shape == (0, 2)
    assert mine.names == tuple(ids)
    assert load_dataset(str(tmp_path / "mine.npz"), limit=2).names == tuple(ids[load_limited(tmp_path)])
    with pytest.raises(UserError, match=r"array ids in .*: give one integer or text for each of the 6"):
        load_dataset(save(tmp_path / "mine.npz", ids=np.zeros(6, int)))


def load_limited(tmp_path):
    return load_dataset(str(tmp_path / "mine.npz"), limit=2).rows.numpy()


def test_arrays_remember_how_they_were_scaled(tmp_path):
    vectors = RANDOM.normal(5, 3, (6, 2))
    mine = load_dataset(save(tmp_path / "mine.npz", train_inputs=vectors))
    assert torch.equal(mine.schema.inputs_of(vectors), mine.train.inputs)
    pixels = RANDOM.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    mine = load_dataset(save(tmp_path / "mine.npz", train_inputs=pixels, test_inputs=pixels[:2]))
    assert torch.equal(mine.schema.inputs_of(pixels), mine.train.inputs)


def test_constant_feature_stays_finite(tmp_path):
    mine = load_dataset(save(tmp_path / "mine.npz", train_inputs=np.full((6, 2), 0.1)))
    assert mine.train.inputs.abs().max() < 1e-6
    assert mine.test.inputs.isfinite().all()


IMAGES = np.zeros((6, 8, 8))
GAP = np.zeros((6, 2))
GAP[3, 1] = np.nan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train_inputs": None, "test_labels": None},
            "has no train_inputs and no test_labels: save the arrays",
        ),
        (
            {"train_inputs": GAP},
            "NaN or infinite values in 1 of 6 examples, first in example 3: fill them in",
        ),
        ({"train_inputs": np.zeros(6)}, r"train_inputs has shape \(6,\): give vectors \(N,F\) or images"),
        ({"test_inputs": np.zeros((0, 2))}, r"test_inputs has shape \(0, 2\): give vectors"),
        ({"train_inputs": np.full((6, 2), "a")}, "train_inputs has type <U1: give numbers"),
        (
            {"train_inputs": np.zeros((5, 2))},
            "has 5 train_inputs and 6 train_labels: give one label per input",
        ),
        ({"test_labels": np.array([0])}, "has 2 test_inputs and 1 test_labels: give one label per input"),
        (
            {"test_inputs": np.zeros((2, 3))},
            r"shape \(2,\) in train_inputs and \(3,\) in test_inputs: give both",
        ),
        ({"train_labels": np.zeros(6, int)}, r"The train rows have one class \('0'\): give examples of at least 2"),
        (
            {"train_labels": LABELS / 1.0},
            r"train_labels has shape \(6,\) and type float64: give one integer or",
        ),
        (
            {"train_labels": LABELS[:, None]},
            r"train_labels has shape \(6, 1\) and type int64: give one integer",
        ),
        (
            {"test_labels": np.array([0, 7])},
            "Only test rows have the label 7: add such examples to the train rows, or leave",
        ),
        ({"test_labels": np.array(["a", "b"])}, "Only test rows have the label a, b"),
        (
            {"train_inputs": IMAGES + 200, "test_inputs": IMAGES[:2]},
            r"The images are float64, from 0 to 200: give uint8, or floats in \[0, 1\]",
        ),
        (
            {"train_inputs": IMAGES.astype(np.uint8), "test_inputs": IMAGES[:2]},
            r"The images are uint8 \(train_inputs\) and float64 \(test_inputs\): .*, in both parts",
        ),
        (
            {"train_inputs": IMAGES.astype(np.int64), "test_inputs": IMAGES[:2].astype(np.int64)},
            r"The images are int64, from 0 to 0: give uint8",
        ),
        (
            {"train_inputs": np.zeros((6, 8, 8, 5)), "test_inputs": np.zeros((2, 8, 8, 5))},
            "do not tell which axis is the channels: give .* with 1, 3 or 4 channels",
        ),
        (
            {"train_inputs": np.zeros((6, 3, 8, 3)), "test_inputs": np.zeros((2, 3, 8, 3))},
            "do not tell which axis is the channels",
        ),
        ({"train_inputs": np.array([None] * 6)}, "is not an .npz file of plain arrays"),
    ],
)
def test_unusable_npz_dataset(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        load_dataset(save(tmp_path / "mine.npz", **changes))


def test_missing_npz(tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*mine\.npz: check the path, or write the file with"):
        load_dataset(str(tmp_path / "mine.npz"))


def test_unusable_arguments(tmp_path):
    with pytest.raises(UserError, match=r"Unknown dataset \(or file .* of your own\) 'digit'\. Did you mean 'digits'"):
        load_dataset("digit")
    with pytest.raises(UserError, match="limit of 9 train examples cannot hold all 10 classes: allow at least 10"):
        load_dataset("digits", limit=9)
    for name in ("digits", "wine", "breast_cancer", save(tmp_path / "mine.npz")):
        with pytest.raises(UserError, match="is not read from a folder: leave the path out"):
            load_dataset(name, tmp_path)
