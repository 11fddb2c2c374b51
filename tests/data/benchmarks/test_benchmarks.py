"""Every loader of image files, on a small tree in the layout in which the dataset is distributed."""

import numpy as np
import pytest
import torch
from PIL import Image

from karat.data.datasets import SIZED, load_dataset
from karat.data.images import ImageFiles
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import prepare_task
from karat.errors import UserError

SYNSETS = ("n01440764", "n01443537", "n02012849")


def draw(path, grey=0):
    """Write a small image of one grey, whose value tells the files apart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 9), (grey, grey, grey)).save(path)


def text(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def greys(inputs):
    """Return the grey of each image, undoing pixel / 127.5 − 1; JPEG may be off by one."""
    return ((inputs[:].mean(dim=(1, 2, 3)) + 1) * 127.5).round().int().tolist()


def names(inputs):
    return [path.rpartition("/")[2] for path in inputs.paths]


def imagenet_tree(root, train=3, flat=False):
    for label, synset in enumerate(SYNSETS):
        for number in range(train):
            draw(root / "imagenet" / "train" / synset / f"{synset}_{number}.JPEG", 40 * label + 10 * number)
        folder = root / "imagenet" / "val" if flat else root / "imagenet" / "val" / synset
        for number in range(2):
            draw(folder / f"ILSVRC2012_val_{label + 3 * number:08}.JPEG", 100 + 40 * label)
    if flat:
        lines = [f"ILSVRC2012_val_{number:08}.JPEG {SYNSETS[number % 3]}" for number in range(6)]
        text(root / "imagenet" / "val_labels.txt", *lines)


def webvision_tree(root):
    imagenet_tree(root)
    info = root / "webvision" / "info"
    text(
        info / "synsets.txt", "n01440764 tench, Tinca tinca", "n01443537 goldfish, Carassius auratus", "n02012849 crane"
    )
    text(info / "train_filelist_google.txt", "google/q0001/b.jpg 0", "google/q0002/a.jpg 1", "google/q0003/c.jpg 2")
    text(info / "train_filelist_flickr.txt", "flickr/q0001/d.jpg 0")
    for image, grey in (("google/q0001/b", 5), ("google/q0002/a", 15), ("google/q0003/c", 25), ("flickr/q0001/d", 35)):
        draw(root / "webvision" / f"{image}.jpg", grey)


def test_imagenet(tmp_path):
    imagenet_tree(tmp_path)
    imagenet = load_dataset("imagenet", tmp_path, image_size=8)
    assert imagenet.classes == SYNSETS
    assert imagenet.train.inputs.shape == (9, 3, 8, 8)
    assert greys(imagenet.train.inputs) == [0, 10, 20, 40, 50, 60, 80, 90, 100]
    assert imagenet.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert imagenet.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert greys(imagenet.test.inputs) == [100, 100, 140, 140, 180, 180]
    assert imagenet.flip
    assert imagenet.curated
    assert imagenet.trusted is None
    assert load_dataset("imagenet", tmp_path).test.inputs.shape == (6, 3, 224, 224)


def test_flat_validation_images_with_a_file_of_labels(tmp_path):
    imagenet_tree(tmp_path, flat=True)
    imagenet = load_dataset("imagenet", tmp_path, image_size=8)
    assert imagenet.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert greys(imagenet.test.inputs) == [100, 140, 180, 100, 140, 180]
    labels = tmp_path / "imagenet" / "val_labels.txt"
    text(labels, "ILSVRC2012_val_00000001.JPEG n01443537")
    with pytest.raises(UserError, match=f"{labels} has no line for ILSVRC2012_val_00000000.JPEG: write its name"):
        load_dataset("imagenet", tmp_path)
    labels.unlink()
    with pytest.raises(UserError, match=f"There is no file {labels}: {labels.parent}/val has no class folders: write"):
        load_dataset("imagenet", tmp_path)


def test_webvision_mini_is_what_google_found_of_the_first_classes(tmp_path, monkeypatch):
    webvision_tree(tmp_path)
    monkeypatch.setattr("karat.data.benchmarks.webvision.MINI_CLASSES", 2)
    mini = load_dataset("webvision_mini", tmp_path, image_size=8, trusted_per_class=2)
    assert mini.classes == ("n01440764 tench", "n01443537 goldfish")
    assert greys(mini.train.inputs) == [5, 15, 0, 10, 40, 50]  # the first two of each class of ImageNet are trusted
    assert mini.train.labels.tolist() == [0, 1, 0, 0, 1, 1]
    assert mini.trusted.tolist() == [False, False, True, True, True, True]
    assert greys(mini.test.inputs) == [100, 100, 140, 140]
    assert mini.test.labels.tolist() == [0, 0, 1, 1]
    assert mini.flip
    assert not mini.curated


def test_webvision_is_all_of_it(tmp_path):
    webvision_tree(tmp_path)
    whole = load_dataset("webvision", tmp_path, image_size=8, trusted_per_class=1)
    assert greys(whole.train.inputs) == [5, 15, 25, 35, 0, 40, 80]
    assert whole.train.labels.tolist() == [0, 1, 2, 0, 0, 1, 2]
    assert whole.trusted.tolist() == [False] * 4 + [True] * 3
    assert len(whole.test) == 6


def test_webvision_as_a_task(tmp_path):
    webvision_tree(tmp_path)
    data = DataSettings("webvision_mini", tmp_path, trusted_per_class=2, image_size=8)
    task = prepare_task(data, NoiseSettings())
    assert names(task.noisy.inputs) == ["b.jpg", "a.jpg", "c.jpg"]
    assert len(task.trusted) == 6
    assert task.mislabelled is None
    assert len(task.fingerprint()) == 32
    assert task.noisy.batch(torch.tensor([1])).inputs.shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("webvision/info/synsets.txt", r"no file {}: unpack WebVision 1\.0 \(.*\) into {root}/webvision"),
        ("webvision/info/train_filelist_google.txt", r"no file {}: unpack WebVision 1\.0"),
        ("webvision/info/train_filelist_flickr.txt", r"no file {}: unpack WebVision 1\.0"),
        ("webvision/flickr", r"no folder {}: unpack WebVision 1\.0"),
        (
            "imagenet/train",
            r"no folder {}: unpack the train images of ILSVRC 2012 .*; the trusted examples come from it",
        ),
        ("imagenet/train/n01443537", r"no folder {}: unpack the train images of ILSVRC 2012"),
        ("imagenet/val", r"no folder {}: unpack the validation images of ILSVRC 2012"),
        ("imagenet/val/n02012849", r"no folder {}: unpack the validation images of ILSVRC 2012"),
    ],
)
def test_what_webvision_misses_is_named(tmp_path, missing, message):
    webvision_tree(tmp_path)
    (tmp_path / missing).rename(tmp_path / "away")
    with pytest.raises(UserError, match="There is " + message.format(tmp_path / missing, root=tmp_path)):
        load_dataset("webvision", tmp_path, trusted_per_class=2)


def test_too_few_images_to_trust(tmp_path):
    webvision_tree(tmp_path)
    with pytest.raises(UserError, match=r"n01440764 has 3 images where 4 are needed: .*, or ask for fewer trusted"):
        load_dataset("webvision", tmp_path, trusted_per_class=4)
    with pytest.raises(UserError, match="0 trusted examples per class: ask for at least 1"):
        load_dataset("webvision", tmp_path, trusted_per_class=0)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("train_filelist_google.txt", "google/q0001/b.jpg", "Line 1 of .* is 'google/q0001/b.jpg': write an image and"),
        ("train_filelist_google.txt", "google/b.jpg one", "gives google/b.jpg the label 'one': write the number"),
        ("train_filelist_google.txt", "google/b.jpg 3", "train labels of webvision reach from 0 to 3: number the 3"),
        ("synsets.txt", "n01440764", "has the line 'n01440764': write a synset and its names"),
    ],
)
def test_unusable_lines(tmp_path, file, line, message):
    webvision_tree(tmp_path)
    text(tmp_path / "webvision" / "info" / file, line)
    with pytest.raises(UserError, match=message):
        load_dataset("webvision", tmp_path, trusted_per_class=2)


def test_a_list_that_is_no_text(tmp_path):
    webvision_tree(tmp_path)
    (tmp_path / "webvision" / "info" / "synsets.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UserError, match=r"synsets.txt is not a text file \(.*\): get a fresh copy"):
        load_dataset("webvision", tmp_path)


def clothing_tree(root):
    images = [f"images/{number}/0{number}/{number}0,{number}.jpg" for number in range(6)]
    for number, image in enumerate(images):
        draw(root / image, 20 * number)
    text(root / "category_names_eng.txt", "T-Shirt", "Down Coat")
    text(root / "noisy_label_kv.txt", *(f"{image} {number % 2}" for number, image in enumerate(images)))
    text(root / "clean_label_kv.txt", *(f"{image} {(number + 1) % 2}" for number, image in enumerate(images[2:], 2)))
    text(root / "noisy_train_key_list.txt", images[1], images[0])
    text(root / "clean_train_key_list.txt", images[2], images[3])
    text(root / "clean_val_key_list.txt", images[4])
    text(root / "clean_test_key_list.txt", images[5])


def test_clothing1m(tmp_path):
    clothing_tree(tmp_path)
    clothing = load_dataset("clothing1m", tmp_path, image_size=8)
    assert clothing.classes == ("T-Shirt", "Down Coat")
    assert greys(clothing.train.inputs) == [20, 0, 40, 60]
    assert clothing.train.labels.tolist() == [1, 0, 1, 0]  # given, given, verified, verified
    assert clothing.trusted.tolist() == [False, False, True, True]
    assert greys(clothing.test.inputs) == [100]
    assert clothing.test.labels.tolist() == [0]
    assert clothing.flip
    assert not clothing.curated


@pytest.mark.parametrize(
    "missing",
    [
        *("category_names_eng.txt", "noisy_label_kv.txt", "clean_label_kv.txt", "noisy_train_key_list.txt"),
        *("clean_train_key_list.txt", "clean_test_key_list.txt", "images"),
    ],
)
def test_what_clothing1m_misses_is_named(tmp_path, missing):
    clothing_tree(tmp_path)
    (tmp_path / missing).rename(tmp_path / "away")
    with pytest.raises(UserError, match=f"There is no .* {tmp_path / missing}: put the lists and images of Clothing1M"):
        load_dataset("clothing1m", tmp_path)


def test_clothing1m_without_a_label(tmp_path):
    clothing_tree(tmp_path)
    text(tmp_path / "noisy_label_kv.txt", "images/0/00/00,0.jpg 0")
    with pytest.raises(UserError, match=r"noisy_label_kv.txt has no label for images/1/01/10,1.jpg of .*noisy_train"):
        load_dataset("clothing1m", tmp_path)


def food_tree(root):
    release, food = root / "Food-101N_release", root / "food-101"
    keys = ["apple_pie/a.jpg", "waffles/b.jpg", "waffles/c.jpg", "apple_pie/d.jpg", "waffles/e.jpg"]
    for number, key in enumerate(keys):
        draw(release / "images" / key, 20 * number)
    text(release / "meta" / "classes.txt", "class_name", "apple_pie", "waffles")
    text(release / "meta" / "imagelist.tsv", "class_name/key", *keys)
    verdicts = ["apple_pie/a.jpg\t1", "waffles/b.jpg\t0", "waffles/c.jpg\t1", "waffles/a.jpg\t1"]
    text(release / "meta" / "verified_train.tsv", "class_name/key\tverification_label", *verdicts)
    text(release / "meta" / "verified_val.tsv", "class_name/key\tverification_label", "apple_pie/d.jpg\t1")
    for key, grey in (("waffles/1", 200), ("apple_pie/2", 220)):
        draw(food / "images" / f"{key}.jpg", grey)
    text(food / "meta" / "classes.txt", "apple_pie", "waffles")
    text(food / "meta" / "test.txt", "waffles/1", "apple_pie/2")


def test_food101n(tmp_path):
    food_tree(tmp_path)
    food = load_dataset("food101n", tmp_path, image_size=8)
    assert food.classes == ("apple_pie", "waffles")
    assert greys(food.train.inputs) == [0, 20, 40, 60, 80]
    assert food.train.labels.tolist() == [0, 1, 1, 0, 1]
    assert food.trusted.tolist() == [True, False, True, False, False]  # verified for training, and found right
    assert greys(food.test.inputs) == [200, 220]
    assert food.test.labels.tolist() == [1, 0]
    assert food.flip
    assert not food.curated


@pytest.mark.parametrize(
    ("missing", "source"),
    [
        ("Food-101N_release/meta/classes.txt", "Food-101N"),
        ("Food-101N_release/meta/imagelist.tsv", "Food-101N"),
        ("Food-101N_release/meta/verified_train.tsv", "Food-101N"),
        ("Food-101N_release/images", "Food-101N"),
        ("food-101/meta/test.txt", "Food-101"),
        ("food-101/images", "Food-101"),
    ],
)
def test_what_food101n_misses_is_named(tmp_path, missing, source):
    food_tree(tmp_path)
    (tmp_path / missing).rename(tmp_path / "away")
    with pytest.raises(UserError, match=rf"There is no .* {tmp_path / missing}: unpack {source} \("):
        load_dataset("food101n", tmp_path)


def test_food101n_with_an_unknown_class(tmp_path):
    food_tree(tmp_path)
    text(tmp_path / "food-101" / "meta" / "test.txt", "sushi/1")
    with pytest.raises(UserError, match=r"test.txt has 'sushi/1.jpg', whose class is not in the classes.txt"):
        load_dataset("food101n", tmp_path)


def test_limit_is_balanced_and_lazy(tmp_path):
    imagenet_tree(tmp_path)
    for file in (tmp_path / "imagenet").rglob("*.JPEG"):
        file.write_bytes(b"damaged")
    small = load_dataset("imagenet", tmp_path, limit=6)
    assert isinstance(small.train.inputs, ImageFiles)
    assert small.train.labels.bincount().tolist() == [2, 2, 2]
    np.testing.assert_array_equal(small.rows // 3, small.train.labels)
    with pytest.raises(UserError, match=r"\.JPEG is not a readable image"):
        small.train.batch(torch.tensor([0]))


def test_limit_keeps_the_mark_of_trusted_examples(tmp_path):
    food_tree(tmp_path)
    food = load_dataset("food101n", tmp_path, limit=4)
    assert food.trusted.tolist() == [[True, False, True, False, False][row] for row in food.rows]


@pytest.mark.parametrize("name", SIZED)
def test_large_datasets_need_a_folder(name, tmp_path):
    with pytest.raises(UserError, match=f"Dataset '{name}' comes without a default folder: set the path to the folder"):
        load_dataset(name)
    with pytest.raises(UserError, match=f"There is no (file|folder) {tmp_path}/"):
        load_dataset(name, tmp_path)
    with pytest.raises(
        UserError, match=f"data.download is for tables, folders, cifar10, cifar100, and not for '{name}': leave it out"
    ):
        load_dataset(name, tmp_path, download=True)


def test_an_empty_class_and_an_empty_list(tmp_path):
    food_tree(tmp_path)
    text(tmp_path / "Food-101N_release" / "meta" / "imagelist.tsv", "class_name/key")
    with pytest.raises(UserError, match="The train part of food101n lists no image: check its files"):
        load_dataset("food101n", tmp_path)
    (tmp_path / "imagenet" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match="imagenet/train has 0 folders of a class: unpack the train images"):
        load_dataset("imagenet", tmp_path)


def test_inputs_of_one_size_take_no_image_size():
    with pytest.raises(
        UserError, match=r"data\.image_size is for tables, .*, food101n, and not for 'digits': leave it out"
    ):
        load_dataset("digits", image_size=32)
