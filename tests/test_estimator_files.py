"""Image files in the estimator: a list of paths goes in, and what is said names them."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from karat import KaratClassifier, UserError
from karat.data.images import image_paths

pytestmark = pytest.mark.filterwarnings("ignore::karat.LabelAuditWarning")  # two epochs are few


@pytest.fixture
def files(tmp_path):
    """Return files of images with stripes, and in which direction these run."""
    random, paths, labels = np.random.default_rng(0), [], []
    for number in range(60):
        stripes = np.tile([[0], [0], [150], [150]], (3, 12))
        stripes = np.roll(stripes, number, axis=0) if number % 2 else np.roll(stripes, number, axis=0).T
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray((stripes + random.integers(0, 100, (12, 12))).astype(np.uint8)).save(paths[-1])
        labels.append("across" if number % 2 else "down")
    return paths, labels


@pytest.mark.parametrize("kind", [Path, str])
def test_paths_are_read_as_images(files, kind):
    paths, labels = files
    given = ["across" if number in (40, 42) else label for number, label in enumerate(labels)]
    model = KaratClassifier(epochs=2, random_state=0, device="cpu")
    model.fit([kind(path) for path in paths], given, trusted=np.arange(60) < 10)
    assert set(model.label_issues_["id"]) == {str(path) for path in paths[10:]}
    assert set(model.label_issues_["index"][:2]) == {40, 42}
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths])
    same = KaratClassifier(epochs=2, random_state=0, device="cpu").fit(pixels, given, trusted=np.arange(60) < 10)
    found = model.predict_proba([kind(path) for path in paths[:10]])
    np.testing.assert_allclose(found, same.predict_proba(pixels[:10]), atol=1e-4)
    further = ([kind(path) for path in paths[:10]], labels[:10])
    again = KaratClassifier(epochs=1, random_state=0, device="cpu")
    again.fit([kind(path) for path in paths[10:]], given[10:], trusted=further)
    assert len(again.label_issues_) == 50


def test_one_long_text_does_not_fill_the_memory():
    """An array of texts has as much room for each as the longest needs."""
    tracemalloc.start()
    try:
        assert image_paths(["a text"] * 1_000 + ["word " * 40_000]) is None
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_file_that_is_missing_is_named(files):
    paths, labels = files
    paths[7].unlink()
    with pytest.raises(UserError, match=r"7\.png"):
        KaratClassifier(epochs=1, random_state=0).fit(paths, labels, trusted=np.arange(60) < 10)


def test_texts_for_a_model_of_images_are_refused(files):
    paths, labels = files
    model = KaratClassifier(epochs=1, random_state=0, device="cpu").fit(paths, labels, trusted=np.arange(60) < 10)
    with pytest.raises(UserError):
        model.predict(["a text", "another"])
