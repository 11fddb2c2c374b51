"""Run the cells of a recipe, several at once; a finished cell is never run again, a killed one continues."""

import io
import logging
import multiprocessing
import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch
from rich.console import Console

from karat.bench.recipe import Cell, Recipe
from karat.errors import UserError
from karat.progress_bar import ProgressBar
from karat.settings.compare import differences
from karat.settings.config import config_as_dict
from karat.settings.read import read_run_config
from karat.training.run import train_run
from karat.training.run_folder import chosen_settings

logger = logging.getLogger("karat")


def run_recipe(recipe: Recipe, folder: Path, jobs: int | None = None, console: Console | None = None) -> list[str]:
    """Run what is not finished yet in `folder`; return the failures, one sentence each.

    Every process computes with one thread: on a few cores several runs at once are faster than one with all.
    """
    waiting = [cell for cell in recipe.cells if not is_finished(cell, folder)]
    if not waiting:
        return []
    jobs = min(jobs or default_jobs(recipe), len(waiting))
    failures: list[str] = []
    done = len(recipe.cells) - len(waiting)
    context = multiprocessing.get_context("spawn")  # fork and torch's threads do not go together
    with (
        ProgressBar(f"{recipe.path.stem} ({jobs} at once)", len(recipe.cells), done, console) as progress,
        ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=(os.getpid(),)) as pool,
    ):
        running: dict[Future[float | None], Cell] = {}
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    cell = waiting.pop(0)
                    running[pool.submit(_run_cell, cell, folder / cell.folder)] = cell
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    cell = running.pop(future)
                    try:
                        accuracy = future.result()
                        progress.advance(**({} if accuracy is None else {"last_accuracy": accuracy}))
                    except BrokenProcessPool:
                        raise UserError(
                            f"A process died in {cell.name}, perhaps for lack of memory: "
                            "the same command goes on, --jobs 1 needs less."
                        ) from None
                    except Exception as error:  # the other cells go on; the failures are said at the end
                        failures.append(f"{cell.name}: {error}")
                        progress.advance()
        finally:
            if waiting or running:  # stopped: without this, Python would wait for the runs that have begun
                for process in list((pool._processes or {}).values()):
                    process.terminate()
            pool.shutdown(cancel_futures=True)
    return failures


def is_finished(cell: Cell, folder: Path) -> bool:
    """Return whether the cell has its results."""
    return (folder / cell.folder / "results.json").exists()


def default_jobs(recipe: Recipe) -> int:
    """Return how many runs at once are wise: one on a GPU, else one on each core that this process may use."""
    if torch.cuda.is_available() and any(cell.config.training.device != "cpu" for cell in recipe.cells):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_cells(recipe: Recipe, folder: Path) -> None:
    """Refuse a folder with cells of other settings: one table must not mix them."""
    for cell in recipe.cells:
        stored = folder / cell.folder / "config.yaml"
        if not stored.exists():
            continue
        before = config_as_dict(read_run_config(stored.parent))
        different = differences(before, config_as_dict(cell.config), chosen_settings(stored.parent))
        if different:
            raise UserError(
                f"{cell.name} was run with other settings in {stored.parent} ({'; '.join(different)}): "
                "choose another folder with --out, or delete that one."
            )


def _run_cell(cell: Cell, folder: Path) -> float | None:
    resume = (folder / "config.yaml").exists()
    silent = Console(file=io.StringIO())  # the bench shows its own progress
    result = train_run(cell.config, folder, resume, silent, report=False)
    return None if result.averaged is None else result.averaged.top1


def _start_worker(parent: int) -> None:
    logging.getLogger("karat").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()


def _leave_with_parent(parent: int) -> None:
    """End this process when its parent is gone, so that nobody else writes to the cell that a new bench resumes."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
