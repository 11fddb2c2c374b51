"""Settings to start from, by name; budget, data and network are the user's in all of them."""

from dataclasses import fields
from typing import TypeVar

from karat.algorithm.settings import AlgorithmSettings, algorithm_preset
from karat.data.settings import AugmentationSettings
from karat.errors import choose
from karat.methods.settings import L2rSettings, MethodSettings, MixMatchKlSettings
from karat.settings.config import Config, OptimizerSettings, TrainingSettings

Settings = TypeVar("Settings", L2rSettings, MixMatchKlSettings)


def _of_the_paper(algorithm: AlgorithmSettings, average_decay: float) -> Config:
    """Return IEG with these choices of Algorithm 1, which the two methods that share some of them take over."""
    return Config(
        method="ieg",
        methods=MethodSettings(
            ieg=algorithm,
            l2r=_taken_over(L2rSettings, algorithm),
            mixmatch_kl=_taken_over(MixMatchKlSettings, algorithm),
        ),
        augmentation=AugmentationSettings(policy="autoaugment", crop=0.125, prediction_views="plain"),
        optimizer=OptimizerSettings("sgd", 0.1, 0.9, weight_decay=5e-4, schedule="cosine_restarts"),
        training=TrainingSettings(epochs=60, batch_size=100, label_smoothing=0.0, average_decay=average_decay),
    )


def _taken_over(kind: type[Settings], algorithm: AlgorithmSettings) -> Settings:
    return kind(**{field.name: getattr(algorithm, field.name) for field in fields(kind)})


# The text gives no average of weights; the released code evaluates one with decay 0.999.
PRESETS: dict[str, Config] = {
    "default": Config(),
    "paper": _of_the_paper(algorithm_preset("paper"), average_decay=0.0),
    "released": _of_the_paper(algorithm_preset("released"), average_decay=0.999),
}


def preset(name: str) -> Config:
    """Return a preset: `default`, `paper` (the text) or `released` (the authors' code).

    >>> preset("released").training.average_decay
    0.999
    """
    return choose("preset", name, PRESETS)
