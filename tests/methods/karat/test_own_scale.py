"""Long vectors keep their scale where it helps to predict labels that were not learned, and only there."""

import numpy as np
import pytest
import torch

from karat import Config, KaratClassifier, make_task
from karat.data.sources.memory import from_memory
from karat.methods.karat.constants import CONSTANTS
from karat.methods.karat.own_scale import OwnScale, own_scale
from karat.training.build import method_task

COUNT, CLASSES, WIDTH = 600, 4, 300


def embeddings(seed=0):
    """Return vectors that differ by class in ten loud columns, and in 290 quiet ones by chance; and their classes."""
    random = np.random.default_rng(seed)
    classes = np.arange(COUNT) % CLASSES
    centres = np.random.default_rng(99).normal(size=(CLASSES, 10))
    loud = centres[classes] + random.normal(size=(COUNT, 10))
    return np.concatenate([3 * loud, 0.3 * random.normal(size=(COUNT, WIDTH - 10))], axis=1), classes


def table(seed=0):
    """Return vectors that differ by class in quiet columns, beside a loud one that says nothing."""
    vectors, classes = embeddings(seed)
    return np.concatenate([vectors, 1000 * vectors[:, -1:]], axis=1), classes


def chosen(vectors, labels):
    trusted = np.arange(len(labels)) < 40
    task = make_task(from_memory(vectors, labels.astype(str), trusted))
    known = method_task(Config(), task, torch.device("cpu"), lambda: None, lambda work, share: None)
    return own_scale(known, torch.Generator().manual_seed(0), CONSTANTS.scale, CONSTANTS.classifier)


@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_unseen_labels_choose_the_scale(wrong):
    random = np.random.default_rng(1)
    for make, keeps in ((embeddings, True), (table, False)):
        vectors, labels = make()
        given = np.where(random.random(COUNT) < wrong, random.integers(0, CLASSES, COUNT), labels)
        assert (chosen(vectors, given) is not None) == keeps


def test_short_vectors_are_not_asked():
    vectors, labels = embeddings()
    assert chosen(vectors[:, :100], labels) is None


def test_vectors_in_their_own_scale_are_what_they_were():
    vectors, _ = embeddings()
    deviation, mean = torch.std_mean(torch.tensor(vectors, dtype=torch.float32), dim=0, correction=0)
    found = OwnScale(mean, deviation).of((torch.tensor(vectors, dtype=torch.float32) - mean) / deviation)
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * WIDTH**0.5
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-3)


def test_the_classifier_of_embeddings_takes_them_as_they_come(monkeypatch):
    """It is better than with standardised columns, and reads what a user gives it."""
    random = np.random.default_rng(2)
    vectors, labels = embeddings()
    given = np.where(random.random(COUNT) < 0.5, random.integers(0, CLASSES, COUNT), labels)
    trusted = np.arange(COUNT) < 40
    given = np.where(trusted, labels, given)
    new, true = embeddings(seed=7)

    def score():
        return KaratClassifier(random_state=0).fit(vectors, given, trusted=trusted).score(new, true)

    kept = score()
    monkeypatch.setattr("karat.methods.karat.method.own_scale", lambda *arguments: None)
    assert kept > score() + 0.05
