"""What noise was asked for and what came of it, as plain values."""

from pathlib import Path
from typing import Any

from torch import Tensor

from karat.data.noise.label_files import save_labels
from karat.data.noise.labels import NoisyLabels
from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.files.json_files import write_json


def noise_summary(labels: NoisyLabels) -> dict[str, Any]:
    """Return counts, rates and transitions [true, given]; None where nobody knows.

    `asked_rate` is the share of wrong labels to expect: the mean of 1 − transition[true, true], with 1 for each
    open-set example. A row of `realised_transition` is None where a class has no examples.

    >>> import torch
    >>> from karat.data.noise.labels import corrupt
    >>> from karat.noise_matrix import symmetric_transition
    >>> summary = noise_summary(corrupt(torch.tensor([0, 1]), symmetric_transition(2, 1.0), torch.Generator()))
    >>> summary["asked_rate"], summary["realised_rate"], summary["realised_transition"]
    (1.0, 1.0, [[0.0, 1.0], [1.0, 0.0]])
    """
    true, realised = labels.true, labels.realised_transition
    return {
        "examples": len(labels.given),
        "classes": labels.classes,
        "wrong": None if true is None else int((labels.given != true).sum()),
        "open_set": None if true is None else int((true < 0).sum()),
        "asked_rate": _asked_rate(labels),
        "realised_rate": labels.rate,
        "given_counts": labels.given.bincount(minlength=labels.classes).tolist(),
        "true_counts": None if true is None else true[true >= 0].bincount(minlength=labels.classes).tolist(),
        "asked_transition": None if labels.transition is None else labels.transition.tolist(),
        "realised_transition": None if realised is None else [_row(row) for row in realised],
    }


def write_noise(task: NoisyTask, path: str | Path) -> dict[str, Any]:
    """Write the labels of all noisy examples as .npz or .csv and their summary beside it as .json; return the summary.

    Examples held out for validation are noisy examples, too.
    """
    path = Path(path)
    rows, labels = task.all_labels()
    summary = noise_summary(labels)
    try:
        save_labels(labels, rows, path)
        write_json(path.with_suffix(".json"), summary)
    except OSError as error:
        raise UserError(f"Cannot write {path} ({error.strerror or error}): choose another file.") from error
    return summary


def _asked_rate(labels: NoisyLabels) -> float | None:
    if labels.true is None or labels.transition is None or not len(labels.true):
        return None
    inside = labels.true[labels.true >= 0]
    expected = (1 - labels.transition.diagonal())[inside].sum().item()
    return (expected + len(labels.true) - len(inside)) / len(labels.true)


def _row(row: Tensor) -> list[float] | None:
    return None if row.isnan().any() else row.tolist()
