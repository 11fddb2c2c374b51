"""Settings that were given and that nothing in the run reads: said in a sentence, never passed over.

Settings that contradict each other are refused where they are read (`data/datasets.py`, `data/noise/kinds.py`). What is
only of no use here is said: a recipe shares settings among rows, a config file among runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields

from karat.data.examples import Dataset
from karat.methods import MethodSettings
from karat.settings.config import Config, flat
from karat.settings.presets import PRESETS
from karat.training.optimizers import OPTIMIZERS, arguments_of

_SHOWN = 3


@dataclass(frozen=True)
class Rule:
    """`SUBJECT does not read SETTINGS: REMEDY.` — each of the three from the config and the data.

    A setting that ends with a dot is a whole section; no settings: the rule does not apply.
    """

    subject: Callable[[Config], str]
    settings: Callable[[Config, Dataset], Sequence[str]]
    remedy: Callable[[Config], str]


def unread_settings(config: Config, dataset: Dataset) -> list[str]:
    """Say which settings were changed that a run of this config on this dataset does not read, a sentence each.

    >>> from karat.data.datasets import load_dataset
    >>> from karat.settings.read import read_config
    >>> changed = {"method": "gce", "methods.ieg.temperature": 0.3, "optimizer.name": "adam", "optimizer.momentum": 0.5}
    >>> print(*unread_settings(read_config(changed), load_dataset("wine")), sep="\\n")
    Method gce does not read methods.ieg.temperature: its own are methods.gce.
    Optimizer adam does not read optimizer.momentum: sgd and rmsprop do.
    """
    changed = _changed(config)
    sentences = []
    for rule in RULES:
        unread = tuple(rule.settings(config, dataset))
        sections = tuple(name for name in unread if name.endswith("."))
        found = [name for name in changed if name in unread or name.startswith(sections)]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            names = ", ".join(found[:_SHOWN]) + more
            sentences.append(f"{rule.subject(config)} does not read {names}: {rule.remedy(config)}.")
    return sentences


def _changed(config: Config) -> list[str]:
    """Return the settings whose values are those of no preset: somebody wrote them."""
    usual = [flat(asdict(one)) for one in PRESETS.values()]
    return [name for name, value in flat(asdict(config)).items() if all(value != one[name] for one in usual)]


def _others(config: Config, dataset: Dataset) -> list[str]:
    return [f"methods.{method.name}." for method in fields(MethodSettings) if method.name != config.method]


def _own_section(config: Config) -> str:
    has_some = any(method.name == config.method for method in fields(MethodSettings))
    return f"its own are methods.{config.method}" if has_some else "leave out what it ignores"


def _images(dataset: Dataset) -> bool:
    return len(dataset.train.inputs.shape) == 4


_OF_IMAGES = (
    *("augmentation.policy", "augmentation.magnitude", "augmentation.crop", "augmentation.cutout", "augmentation.flip"),
    *("data.image_size", "data.on_bad_image", "data.path_column"),
)
_OF_VECTORS = ("augmentation.feature_dropout", "augmentation.feature_noise", "data.missing")
# WebVision draws so many trusted images from ImageNet while it is loaded.
_DRAWS_ITS_OWN = ("webvision", "webvision_mini")

RULES: tuple[Rule, ...] = (
    Rule(lambda config: f"Method {config.method}", _others, _own_section),
    Rule(
        lambda config: f"Optimizer {config.optimizer.name}",
        lambda config, dataset: () if "momentum" in arguments_of(config.optimizer.name) else ("optimizer.momentum",),
        lambda config: f"{' and '.join(name for name in OPTIMIZERS if 'momentum' in arguments_of(name))} do",
    ),
    Rule(
        lambda config: f"A run of {config.training.steps} steps",
        lambda config, dataset: () if config.training.steps is None else ("training.epochs",),
        lambda config: "leave one of the two out",
    ),
    Rule(
        lambda config: f"Policy {config.augmentation.policy}",
        lambda config, dataset: () if config.augmentation.policy == "randaugment" else ("augmentation.magnitude",),
        lambda config: "randaugment does",
    ),
    Rule(
        lambda config: "A dataset of vectors",
        lambda config, dataset: () if _images(dataset) else _OF_IMAGES,
        lambda config: "one of images does",
    ),
    Rule(
        lambda config: "A dataset of images",
        lambda config, dataset: _OF_VECTORS if _images(dataset) else (),
        lambda config: "one of vectors does",
    ),
    Rule(
        lambda config: "A dataset that names its trusted examples",
        lambda config, dataset: (
            () if dataset.trusted is None or dataset.name in _DRAWS_ITS_OWN else ("data.trusted_per_class",)
        ),
        lambda config: "one whose trusted examples are drawn does",
    ),
)
