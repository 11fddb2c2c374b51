"""Karat: accurate classifiers from badly labelled data and a few trusted labels.

What is public stands in `__all__`, and docs/api.md describes it. Modules and everything else in them are private by
convention: they may change with any version.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from karat.algorithm.coefficients import DataCoefficients as DataCoefficients
    from karat.algorithm.settings import AlgorithmSettings as AlgorithmSettings
    from karat.data.sources.memory import from_memory as from_memory
    from karat.data.task import make_task as make_task
    from karat.errors import UserError as UserError
    from karat.estimator.classifier import KaratClassifier as KaratClassifier
    from karat.estimator.classifier import LabelAuditWarning as LabelAuditWarning
    from karat.estimator.classifier import NoTrustedLabelsWarning as NoTrustedLabelsWarning
    from karat.files.safe_csv import read_safe_csv as read_safe_csv
    from karat.inference.model import TrainedModel as TrainedModel
    from karat.inference.model import load_model as load_model
    from karat.own_loop import data_coefficients as data_coefficients
    from karat.settings.config import Config as Config
    from karat.settings.read import read_config as read_config
    from karat.training.run import RunResult as RunResult
    from karat.training.run import train as train

__version__ = "0.1.0"

_HOMES = {  # in the order of docs/api.md
    "train": "karat.training.run",
    "RunResult": "karat.training.run",
    "load_model": "karat.inference.model",
    "TrainedModel": "karat.inference.model",
    "KaratClassifier": "karat.estimator.classifier",
    "NoTrustedLabelsWarning": "karat.estimator.classifier",
    "LabelAuditWarning": "karat.estimator.classifier",
    "data_coefficients": "karat.own_loop",
    "DataCoefficients": "karat.algorithm.coefficients",
    "AlgorithmSettings": "karat.algorithm.settings",
    "from_memory": "karat.data.sources.memory",
    "make_task": "karat.data.task",
    "read_config": "karat.settings.read",
    "Config": "karat.settings.config",
    "read_safe_csv": "karat.files.safe_csv",
    "UserError": "karat.errors",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `import karat` alone loads neither torch nor scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"module 'karat' has no attribute '{name}'")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
