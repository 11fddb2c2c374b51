"""Settings that were given and that nothing in the run reads: said in a sentence, never passed over.

Settings that contradict each other are refused where they are read (`data/datasets.py`, `data/noise/kinds.py`). What is
only of no use here is said: a recipe shares settings among rows, a config file among runs.
"""

from dataclasses import asdict, fields
from typing import NamedTuple

from karat.data.datasets import DOWNLOADABLE
from karat.data.examples import Dataset
from karat.data.modality import FEATURES, IMAGES, TEXTS
from karat.methods.settings import MethodSettings
from karat.models.pretrained import is_pretrained
from karat.settings.config import Config, flat
from karat.settings.presets import PRESETS
from karat.training.optimizers import OPTIMIZERS, arguments_of

_SHOWN = 3
_OF_IMAGES = (
    *("data.image_size", "data.on_bad_image", "data.path_column", "augmentation.policy", "augmentation.magnitude"),
    *("augmentation.crop", "augmentation.cutout", "augmentation.flip", "augmentation.prediction_views"),
)
_OF_VECTORS = ("data.missing", "augmentation.feature_dropout", "augmentation.feature_noise")
_OF_TEXTS = ("data.download", "data.encoder")
_OF_TRAINING = ("training.epochs", "training.steps", "training.batch_size", "training.average_decay", "optimizer.")
_OF_PASSES = ("training.precision", "training.compile", "training.batch_norm")
_OF_VIEWS = ("augmentation.policy", "augmentation.magnitude", "augmentation.crop", "augmentation.cutout")
_UNREAD_BY_KARAT = (
    *("training.compile", "augmentation.policy", "augmentation.magnitude", "augmentation.cutout"),
    "methods.karat.temperature",
)
_WEBVISION = ("webvision", "webvision_mini")  # they draw their trusted images from ImageNet while they are loaded


class Rule(NamedTuple):
    """`SUBJECT does not read UNREAD: REMEDY.` An unread name that ends with a dot is a whole section."""

    subject: str
    unread: tuple[str, ...]
    remedy: str


def rules(config: Config, dataset: Dataset, fitted: bool) -> tuple[Rule, ...]:
    """Return what a run of this config on this dataset does not read; nothing where a rule does not apply."""
    method, optimizer, training = config.method, config.optimizer.name, config.training
    methods = [settings.name for settings in fields(MethodSettings)]
    with_momentum = [name for name in OPTIMIZERS if "momentum" in arguments_of(name)]
    images, pretrained = dataset.modality in (IMAGES, FEATURES), is_pretrained(config.model, config.weights)
    read_by_texts = ("data.on_bad_image",) if dataset.modality is TEXTS else ()
    named = dataset.trusted is not None and dataset.name not in _WEBVISION
    return (
        Rule(
            f"Method {method}",
            tuple(f"methods.{other}." for other in methods if other != method),
            f"its own are methods.{method}" if method in methods else "leave out what it ignores",
        ),
        Rule(
            "Method karat on vectors",
            ("methods.karat.rounds",) if method == "karat" and (dataset.featured or not images) else (),
            "their labels are judged once",
        ),
        Rule(
            "Method karat on images",
            _UNREAD_BY_KARAT if method == "karat" and images and not dataset.featured else (),
            "it learns weak views and close-ups, and the features of both",
        ),
        Rule(
            f"Optimizer {optimizer}",
            () if optimizer == "auto" or "momentum" in arguments_of(optimizer) else ("optimizer.momentum",),
            f"{', '.join(with_momentum[:-1])} and {with_momentum[-1]} do",
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
        Rule(
            f"A dataset of {dataset.modality.name}",
            () if images else tuple(name for name in _OF_IMAGES if name not in read_by_texts),
            "one of images does",
        ),
        Rule(
            f"A dataset of {dataset.modality.name}",
            () if dataset.modality is TEXTS else _OF_TEXTS[pretrained or dataset.name in DOWNLOADABLE :],
            "one of texts does",
        ),
        Rule(
            "A run that trains no network",
            _unread_by_fitted(dataset, training.fine_tune) if fitted else (),
            "--training.fine_tune 5 trains it" if dataset.featured else "--model mlp trains one",
        ),
        Rule(
            "A run without the features of a pretrained network",
            () if dataset.featured else ("data.cache", "training.fine_tune"),
            "method karat with --model timm:NAME and --weights FILE has them",
        ),
        Rule("A dataset of images", _OF_VECTORS if images else (), "one of vectors does"),
        Rule(
            "A dataset that names its trusted examples",
            ("data.trusted_per_class",) if named else (),
            "one whose trusted examples are drawn does",
        ),
    )


def _unread_by_fitted(dataset: Dataset, fine_tune: int) -> tuple[str, ...]:
    """Return what a run reads only where it trains a network."""
    if not dataset.featured:
        return *_OF_PASSES, *_OF_TRAINING
    # Fine-tuning is done by one process.
    return (*_OF_PASSES[-1:], *_OF_TRAINING[:-1]) if fine_tune else (*_OF_PASSES, *_OF_TRAINING, *_OF_VIEWS)


def unread_settings(config: Config, dataset: Dataset, fitted: bool = False) -> list[str]:
    """Say which settings were changed that a run of this config on this dataset does not read, a sentence each.

    `fitted`: its classifier is fitted, and nothing trained.

    >>> from karat.data.datasets import load_dataset
    >>> from karat.settings.read import read_config
    >>> changed = {"method": "gce", "methods.ieg.temperature": 0.3, "optimizer.name": "adam", "optimizer.momentum": 0.5}
    >>> print(*unread_settings(read_config(changed), load_dataset("wine")), sep="\\n")
    Method gce does not read methods.ieg.temperature: its own are methods.gce.
    Optimizer adam does not read optimizer.momentum: sgd, muon and rmsprop do.
    """
    # What has the value of a preset is nobody's choice.
    usual = [flat(asdict(one)) for one in PRESETS.values()]
    changed = [name for name, value in flat(asdict(config)).items() if all(value != one[name] for one in usual)]
    sentences = []
    for subject, unread, remedy in rules(config, dataset, fitted):
        sections = tuple(name for name in unread if name.endswith("."))
        found = [name for name in changed if name in unread or name.startswith(sections)]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            sentences.append(f"{subject} does not read {', '.join(found[:_SHOWN])}{more}: {remedy}.")
    return sentences
