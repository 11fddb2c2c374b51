"""The report of a run with its examples: pictures of images, the user's own cells of table rows."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.report import REVIEW_ROWS
from karat.report.page import write_report, write_sample_page
from karat.report.pictures import Array, FeatureRows, Thumbnail
from karat.report.run_files import check_finished

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


def sample_page_of_run(folder: Path, load_task: Callable[[], NoisyTask] | None) -> Path:
    """Write the page on which the sample of a run is decided; without a way to load its examples it has no pictures."""
    check_finished(folder)
    if load_task is None:
        return write_sample_page(folder)
    return write_sample_page(folder, *_shown(load_task()))


def report_after_training(task: NoisyTask, folder: Path) -> None:
    """Write the report of a run that has just finished; whatever hinders it must not spoil the run."""
    try:
        task_report(task, folder)
    except (UserError, OSError) as error:
        logger.warning("The run is complete, but its report is not written (%s): try `karat report %s`.", error, folder)


def task_report(task: NoisyTask, folder: Path, review_rows: int = REVIEW_ROWS, compare: Sequence[Path] = ()) -> Path:
    """Write the report of a finished run whose examples are at hand."""
    thumbnail, features = _shown(task)
    return write_report(
        folder,
        thumbnail=thumbnail,
        features=features,
        review_rows=review_rows,
        compare=compare,
        skipped=task.dataset.skipped,
        notes=task.dataset.notes,
    )


def _shown(task: NoisyTask) -> tuple[Thumbnail | None, FeatureRows | None]:
    """Return how the examples of a task are shown: as pictures, by the user's cells, or both."""
    cells, examples = task.dataset.cells, _Examples(task)
    return (
        None if task.dataset.modality.pictures is None else examples.pictures,
        None if cells is None else FeatureRows(cells.names, examples.cells, cells.are_texts),
    )


class _Examples:
    """The noisy examples of a task by their `index`, shown as a person can read them."""

    def __init__(self, task: NoisyTask) -> None:
        self.inputs = task.noisy.inputs
        self.places = {row: place for place, row in enumerate(task.noisy_rows.tolist())}
        self.dataset = task.dataset

    def pictures(self, rows: Sequence[int]) -> list[Array]:
        """Return the pictures of the inputs."""
        assert self.dataset.modality.pictures is not None
        return self.dataset.modality.pictures(self.inputs[torch.tensor(self._places(rows))])

    def cells(self, rows: Sequence[int], columns: int) -> list[list[str]]:
        """Return what the user wrote about the rows in the first columns."""
        self._places(rows)
        assert self.dataset.cells is not None
        return self.dataset.cells.text(rows, columns)

    def _places(self, rows: Sequence[int]) -> list[int]:
        try:
            return [self.places[row] for row in rows]
        except KeyError as error:
            raise UserError(
                f"The data have no noisy example at row {error} any more: put the data of the run back, "
                "or make the report with --no-pictures."
            ) from error
