"""Settings that were given and that nothing in the run reads: said in a sentence, never passed over.

Settings that contradict each other are refused where they are read (`data/datasets.py`, `data/noise/kinds.py`). What is
only of no use here is said: a recipe shares settings among rows, a config file among runs.
"""

from dataclasses import asdict, fields
from typing import NamedTuple

from karat.data.examples import Dataset
from karat.data.modality import IMAGES
from karat.methods import MethodSettings
from karat.settings.config import Config, flat
from karat.settings.presets import PRESETS
from karat.training.optimizers import OPTIMIZERS, arguments_of

_SHOWN = 3
_OF_IMAGES = (
    *("data.image_size", "data.on_bad_image", "data.path_column", "augmentation.policy", "augmentation.magnitude"),
    *("augmentation.crop", "augmentation.cutout", "augmentation.flip"),
)
_OF_VECTORS = ("data.missing", "augmentation.feature_dropout", "augmentation.feature_noise")
_WEBVISION = ("webvision", "webvision_mini")  # they draw their trusted images from ImageNet while they are loaded


class Rule(NamedTuple):
    """`SUBJECT does not read UNREAD: REMEDY.` An unread name that ends with a dot is a whole section."""

    subject: str
    unread: tuple[str, ...]
    remedy: str


def rules(config: Config, dataset: Dataset) -> tuple[Rule, ...]:
    """Return what a run of this config on this dataset does not read; nothing where a rule does not apply."""
    method, optimizer, training = config.method, config.optimizer.name, config.training
    methods = [settings.name for settings in fields(MethodSettings)]
    with_momentum = [name for name in OPTIMIZERS if "momentum" in arguments_of(name)]
    images = dataset.modality is IMAGES
    named = dataset.trusted is not None and dataset.name not in _WEBVISION
    return (
        Rule(
            f"Method {method}",
            tuple(f"methods.{other}." for other in methods if other != method),
            f"its own are methods.{method}" if method in methods else "leave out what it ignores",
        ),
        Rule(
            "Method karat on vectors",
            ("methods.karat.refits",) if method == "karat" and not images else (),
            "its label model is fitted once there",
        ),
        Rule(
            f"Optimizer {optimizer}",
            () if "momentum" in arguments_of(optimizer) else ("optimizer.momentum",),
            f"{' and '.join(with_momentum)} do",
        ),
        Rule(
            f"A run of {training.steps} steps",
            () if training.steps is None else ("training.epochs",),
            "leave one of the two out",
        ),
        Rule(
            f"Policy {config.augmentation.policy}",
            () if config.augmentation.policy == "randaugment" or not images else ("augmentation.magnitude",),
            "randaugment does",
        ),
        Rule("A dataset of vectors", () if images else _OF_IMAGES, "one of images does"),
        Rule("A dataset of images", _OF_VECTORS if images else (), "one of vectors does"),
        Rule(
            "A dataset that names its trusted examples",
            ("data.trusted_per_class",) if named else (),
            "one whose trusted examples are drawn does",
        ),
    )


def unread_settings(config: Config, dataset: Dataset) -> list[str]:
    """Say which settings were changed that a run of this config on this dataset does not read, a sentence each.

    >>> from karat.data.datasets import load_dataset
    >>> from karat.settings.read import read_config
    >>> changed = {"method": "gce", "methods.ieg.temperature": 0.3, "optimizer.name": "adam", "optimizer.momentum": 0.5}
    >>> print(*unread_settings(read_config(changed), load_dataset("wine")), sep="\\n")
    Method gce does not read methods.ieg.temperature: its own are methods.gce.
    Optimizer adam does not read optimizer.momentum: sgd and rmsprop do.
    """
    # What has the value of a preset is nobody's choice.
    usual = [flat(asdict(one)) for one in PRESETS.values()]
    changed = [name for name, value in flat(asdict(config)).items() if all(value != one[name] for one in usual)]
    sentences = []
    for subject, unread, remedy in rules(config, dataset):
        sections = tuple(name for name in unread if name.endswith("."))
        found = [name for name in changed if name in unread or name.startswith(sections)]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            sentences.append(f"{subject} does not read {', '.join(found[:_SHOWN])}{more}: {remedy}.")
    return sentences
