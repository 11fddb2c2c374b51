"""Settings that a run does not read: each is said, in the run and in the estimator, and nothing else is."""

from dataclasses import fields

import numpy as np
import pytest
from making import features, write_table

from karat.cli import main
from karat.data.datasets import load_dataset
from karat.settings.config import Config, config_as_dict, flat
from karat.settings.presets import PRESETS
from karat.settings.read import read_config
from karat.training.unread import rules, unread_settings

VECTORS, IMAGES = "wine", "digits"


@pytest.mark.parametrize(
    ("values", "data", "said"),
    [
        (
            {"methods.ieg.temperature": 0.3},
            VECTORS,
            ("Method karat", "methods.ieg.temperature", "its own are methods.karat"),
        ),
        (
            {"method": "supervised", "methods.l2r.derivative": "jvp"},
            VECTORS,
            ("Method supervised", "methods.l2r.derivative", "leave out what it ignores"),
        ),
        ({"method": "l2r", "methods.l2r.derivative": "jvp"}, VECTORS, None),
        (
            {"method": "ieg", "methods.l2r.derivative": "jvp"},
            VECTORS,
            ("Method ieg", "methods.l2r.derivative", "its own are methods.ieg"),
        ),
        (
            {"optimizer.name": "adam", "optimizer.momentum": 0.5},
            VECTORS,
            ("Optimizer adam", "optimizer.momentum", "sgd, muon and rmsprop do"),
        ),
        ({"optimizer.name": "rmsprop", "optimizer.momentum": 0.5}, VECTORS, None),
        (
            {"training.steps": 5, "training.epochs": 3},
            VECTORS,
            ("A run of 5 steps", "training.epochs", "leave one of the two out"),
        ),
        ({"training.steps": 5, "preset": "paper"}, IMAGES, None),
        (
            {"method": "ieg", "augmentation.policy": "none", "augmentation.magnitude": 9},
            IMAGES,
            ("Policy none", "augmentation.magnitude", "randaugment does"),
        ),
        ({"method": "ieg", "augmentation.magnitude": 9, "augmentation.flip": True}, IMAGES, None),
        (
            {"augmentation.magnitude": 9, "augmentation.flip": True, "training.compile": True},
            IMAGES,
            (
                "Method karat on images",
                "augmentation.magnitude, training.compile",
                "it learns weak views and close-ups, and the features of both",
            ),
        ),
        (
            {"augmentation.cutout": 0.1, "data.image_size": 8, "data.on_bad_image": "skip"},
            VECTORS,
            ("A dataset of vectors", "data.image_size, data.on_bad_image, augmentation.cutout", "one of images does"),
        ),
        ({"augmentation.feature_noise": 0.2}, VECTORS, None),
        (
            {"augmentation.feature_noise": 0.2, "data.missing": "impute"},
            IMAGES,
            ("A dataset of images", "data.missing, augmentation.feature_noise", "one of vectors does"),
        ),
        ({"data.trusted_per_class": 5}, VECTORS, None),
        (
            {"methods.karat.rounds": 3},
            VECTORS,
            ("Method karat on vectors", "methods.karat.rounds", "their labels are judged once"),
        ),
        ({"methods.karat.rounds": 3}, IMAGES, None),
    ],
)
def test_what_a_run_does_not_read_is_said(values, data, said):
    sentences = [] if said is None else ["{} does not read {}: {}.".format(*said)]
    assert unread_settings(read_config(values), load_dataset(data)) == sentences


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", ["ieg", "gce"])
def test_what_a_preset_sets_is_nobodys_mistake(preset, method):
    assert unread_settings(read_config({"preset": preset, "method": method}), load_dataset(IMAGES)) == []


def test_many_are_counted():
    values = {
        f"methods.ieg.{name}": 0.3 for name in ("temperature", "threshold", "initial_label_trust", "relabelled_weight")
    }
    (sentence,) = unread_settings(read_config(values), load_dataset(VECTORS))
    assert sentence.startswith("Method karat does not read methods.ieg.temperature, ")
    assert sentence.endswith(" and 1 more: its own are methods.karat.")


def test_the_rules_name_settings_that_exist():
    known = set(flat(config_as_dict(Config())))
    sections = {"optimizer.", *(f"methods.{method.name}." for method in fields(Config().methods))}
    for data in (load_dataset(VECTORS), load_dataset(IMAGES)):
        for values in ({}, {"optimizer.name": "adam", "training.steps": 5, "augmentation.policy": "none"}):
            named = {name for rule in rules(read_config(values), data, fitted=True) for name in rule.unread}
            assert named <= known | sections


@pytest.mark.parametrize("kind", ["table", "npz"])
def test_trusted_examples_that_are_named_are_not_drawn(kind, tmp_path, capsys):
    if kind == "table":
        data = write_table(tmp_path / "mine.csv", features())
    else:
        data = str(tmp_path / "mine.npz")
        numbers = np.random.default_rng(0).random((30, 4))
        np.savez(data, train_inputs=numbers, train_labels=np.arange(30) % 2, trusted=np.arange(30) < 10)
    options = ["--training.steps", "1", "--training.batch_size", "2", "--method", "supervised"]
    run = ["train", data, *options, "--run", str(tmp_path / "run"), "--data.trusted_per_class", "3"]
    assert main(run) == 0
    sentence = "karat: A dataset that names its trusted examples does not read data.trusted_per_class: one whose"
    assert sentence in capsys.readouterr().err
