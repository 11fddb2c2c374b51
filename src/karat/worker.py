"""One of the processes of a run that `karat train --training.devices N` starts: `python -m karat.worker WORK`."""

import sys
from pathlib import Path

from karat.cli import ended, leave


def take_part(path: str) -> int:
    """Take part in the run that a file describes; return the exit code."""

    def work() -> None:
        from karat.training.launch import read_work
        from karat.training.run import train_run

        todo = read_work(Path(path))
        train_run(todo.config, todo.folder, todo.resume, report=todo.report, name_folder=todo.name_folder)

    return ended(work)


if __name__ == "__main__":
    leave(take_part(sys.argv[1]))
