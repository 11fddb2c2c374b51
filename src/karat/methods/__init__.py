"""Methods: one file each, all with the step signature of `karat.methods.step`."""

from karat.errors import choose
from karat.methods.ieg import ieg
from karat.methods.l2r import l2r
from karat.methods.step import Step
from karat.methods.supervised import supervised

METHODS: dict[str, Step] = {"supervised": supervised, "l2r": l2r, "ieg": ieg}


def method_named(name: str) -> Step:
    """Look a method's step up by its name.

    >>> method_named("l2r").__name__
    'l2r'
    """
    return choose("method", name, METHODS)
