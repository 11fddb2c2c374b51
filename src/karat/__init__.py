"""Karat: accurate classifiers from badly labelled data and a few trusted labels."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from karat.estimator import KaratClassifier as KaratClassifier
    from karat.own_loop import data_coefficients as data_coefficients

__version__ = "0.1.0"
__all__ = ["KaratClassifier", "__version__", "data_coefficients"]

_HOMES = {"KaratClassifier": "karat.estimator", "data_coefficients": "karat.own_loop"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: `import karat` alone loads neither torch nor scikit-learn."""
    if name not in _HOMES:
        raise AttributeError(f"module 'karat' has no attribute '{name}'")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
