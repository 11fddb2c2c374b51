"""The report of a run with its examples: pictures of images, values of table rows, read from the data again."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from karat.data.schema import Column
from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.report import REVIEW_ROWS, FeatureRows, write_report
from karat.report.pictures import Array
from karat.report.run_files import check_finished

__all__ = ["REVIEW_ROWS", "column_values", "report_after_training", "report_run", "task_report"]

logger = logging.getLogger("karat")


def report_run(
    folder: Path,
    load_task: Callable[[], NoisyTask] | None,
    review_rows: int = REVIEW_ROWS,
    compare: Sequence[Path] = (),
) -> Path:
    """Write the report of a finished run; without a way to load its examples it has no pictures."""
    for one in (folder, *compare):
        check_finished(one)  # before the data are loaded, which may take long
    if load_task is None:
        return write_report(folder, review_rows=review_rows, compare=compare)
    return task_report(load_task(), folder, review_rows, compare)


def report_after_training(task: NoisyTask, folder: Path) -> None:
    """Write the report of a run that has just finished; whatever hinders it must not spoil the run."""
    try:
        task_report(task, folder)
    except (UserError, OSError) as error:
        logger.warning("The run is complete, but its report is not written (%s): try `karat report %s`.", error, folder)


def task_report(task: NoisyTask, folder: Path, review_rows: int = REVIEW_ROWS, compare: Sequence[Path] = ()) -> Path:
    """Write the report of a finished run whose examples are at hand."""
    images = len(task.noisy.inputs.shape) == 4
    examples = _Examples(task)
    return write_report(
        folder,
        thumbnail=examples.images if images else None,
        features=None if images else FeatureRows(examples.names, examples.values),
        review_rows=review_rows,
        compare=compare,
        skipped=task.dataset.skipped,
        notes=task.dataset.notes,
    )


def column_values(columns: Sequence[Column], inputs: Tensor) -> list[list[object]]:
    """Return the user's values of rows, from the inputs that `columns` made of them.

    >>> columns = [Column("age", "number", mean=40, scale=10), Column("town", "category", levels=("Bonn", "Rome"))]
    >>> column_values(columns, torch.tensor([[1.0, 0.0, 1.0]]))
    [[50.0, 'Rome']]
    """
    rows: list[list[object]] = [[] for _ in inputs]
    start = 0
    for column in columns:
        part = inputs[:, start : start + len(column.inputs)]
        start += len(column.inputs)
        for row, values in zip(rows, part.double().tolist(), strict=True):
            row.append(_value(column, values))
    return rows


class _Examples:
    """The noisy examples of a task by their `index`, shown as a person can read them."""

    def __init__(self, task: NoisyTask) -> None:
        self.inputs = task.noisy.inputs
        self.places = {row: place for place, row in enumerate(task.noisy_rows.tolist())}
        schema = task.dataset.schema
        self.columns = () if schema is None else schema.columns

    @property
    def names(self) -> list[str]:
        """Return the names of the user's columns, or numbers for want of names."""
        if self.columns:
            return [column.name for column in self.columns]
        return [f"feature {number}" for number in range(self.inputs.shape[1])]

    def images(self, rows: Sequence[int]) -> list[Array]:
        """Return the pictures as the network sees them before augmentation."""
        pixels = ((self._inputs(rows) + 1) * 127.5).round().clamp(0, 255).byte()
        if pixels.shape[1] not in (1, 3):  # such as satellite bands: the first one says most
            pixels = pixels[:, :1]
        return [image.squeeze(2) if image.shape[2] == 1 else image for image in pixels.permute(0, 2, 3, 1).numpy()]

    def values(self, rows: Sequence[int]) -> Sequence[Sequence[object]]:
        """Return the values of the columns."""
        inputs = self._inputs(rows)
        return column_values(self.columns, inputs) if self.columns else inputs.tolist()

    def _inputs(self, rows: Sequence[int]) -> Tensor:
        try:
            places = torch.tensor([self.places[row] for row in rows], dtype=torch.int64)
        except KeyError as error:
            raise UserError(
                f"The data have no noisy example at row {error} any more: put the data of the run back, "
                "or make the report with --no-pictures."
            ) from error
        return self.inputs[places]


def _value(column: Column, values: Sequence[float]) -> object:
    if column.kind == "number":
        missing = column.fill is not None and values[1] > 0.5
        return None if missing else values[0] * column.scale + column.mean
    names = (*column.levels, "(another)") if column.other else column.levels
    best = max(range(len(values)), key=values.__getitem__, default=-1)
    return names[best] if best >= 0 and values[best] > 0.5 else "(unknown)"
