"""The paper's own results: every number of its tables, found by what they are of."""

import csv
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from karat.errors import UserError


class PaperResult(NamedTuple):
    """An accuracy in percent and, where the paper gives them, its spread and the top-5 accuracy."""

    accuracy: float
    std: float | None
    top5: float | None


@lru_cache
def paper_lines() -> tuple[dict[str, str], ...]:
    """Return the lines of the paper's tables: table, dataset, noise, method, network, trusted_per_class, accuracies.

    >>> len(paper_lines())
    158
    """
    text = files("karat.bench").joinpath("paper_results.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def matching_lines(wanted: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the lines that agree with every wanted value; numbers are compared as numbers."""
    unknown = wanted.keys() - paper_lines()[0].keys()
    if unknown:
        raise UserError(f"The paper's results have no column '{min(unknown)}': use {', '.join(paper_lines()[0])}.")
    return [line for line in paper_lines() if all(_same(line[key], value) for key, value in wanted.items())]


def paper_result(wanted: Mapping[str, Any]) -> PaperResult | None:
    """Return the one result that is wanted; None where the paper has none.

    >>> paper_result({"table": "cifar10_uniform", "noise_ratio": 0.8, "method": "ieg", "network": "wrn28-10",
    ...               "trusted_per_class": 10})
    PaperResult(accuracy=93.7, std=0.5, top5=None)
    """
    if "method" not in wanted:
        return None
    lines = matching_lines(wanted)
    if not lines:
        return None
    if len(lines) > 1:
        raise UserError(f"{len(lines)} results of the paper are {dict(wanted)}: name the network and noise_ratio, too.")
    return PaperResult(float(lines[0]["accuracy"]), _number(lines[0]["std"]), _number(lines[0]["top5"]))


def _same(text: str, value: Any) -> bool:
    if value is None:
        return text == ""
    try:
        return float(text) == float(value)
    except ValueError:
        return text == str(value)


def _number(text: str) -> float | None:
    return float(text) if text else None
