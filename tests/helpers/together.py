"""Several processes that work together, forked from this one, which has imported everything."""

import os
import pickle
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from karat.algorithm.ranks import Ranks
from karat.cli import main

LONGEST_SECONDS = 600  # of one process, on a busy machine: a test that hangs fails


def together(count: int, work: Callable[[Ranks | None], Any]) -> list[Any]:
    """Return what `work` returns in each of so many processes; one process works here, without any others."""
    if count == 1:
        return [work(None)]
    with tempfile.TemporaryDirectory() as folder:
        started = [_start(rank, count, work, Path(folder)) for rank in range(count)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in started]
        assert codes == [0] * count, f"processes ended with {codes}"
        return [pickle.loads((Path(folder) / f"{rank}.pickle").read_bytes()) for rank in range(count)]


class Command:
    """A command in several processes, as torchrun starts it: the place of each is in its environment."""

    def __init__(self, count: int, arguments: list[str], log: Path, **environment: str) -> None:
        self.log = log
        port = free_port()
        places = [
            {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port), **environment}
            for rank in range(count)
        ]  # fmt: skip
        self.processes = [self._start(arguments, place) for place in places]

    def _start(self, arguments: list[str], place: dict[str, str]) -> int:
        process = os.fork()
        if process:
            return process
        code = 70
        try:
            os.environ.update(place)
            output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")  # those of the tests are in memory
            signal.alarm(LONGEST_SECONDS)
            code = main(arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self) -> list[int]:
        """Return the exit codes; those of processes that a signal ended are negative."""
        return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in self.processes]

    @property
    def said(self) -> str:
        """Return what the processes said."""
        return self.log.read_text()


def free_port() -> int:
    """Return a port that nobody listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _start(rank: int, count: int, work: Callable[[Ranks | None], Any], folder: Path) -> int:
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LONGEST_SECONDS)
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
        (folder / f"{rank}.pickle").write_bytes(pickle.dumps(work(Ranks())))
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
