"""Several processes that work together, forked from this one, which has imported everything."""

import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from karat.algorithm.ranks import Ranks

LONGEST_SECONDS = 120  # of one process: a test that hangs fails


def together(count: int, work: Callable[[Ranks | None], Any]) -> list[Any]:
    """Return what `work` returns in each of so many processes; one process works here, without any others."""
    if count == 1:
        return [work(None)]
    with tempfile.TemporaryDirectory() as folder:
        started = [_start(rank, count, work, Path(folder)) for rank in range(count)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in started]
        assert codes == [0] * count, f"processes ended with {codes}"
        return [pickle.loads((Path(folder) / f"{rank}.pickle").read_bytes()) for rank in range(count)]


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
