"""The processes of a run: whether this one was started as one of several, and how they find each other."""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist

from karat.algorithm.ranks import Ranks
from karat.errors import Stopped, Told, UserError
from karat.settings.config import TrainingSettings

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

# The first process works alone between phases, for hours where the data are large; a process that died is noticed by
# its closed connection, or by whoever started it.
LONGEST_WAIT = timedelta(days=2)
JOINING = timedelta(minutes=10)  # until all processes have been started
OTHERS_SECONDS = 10.0  # for the other processes to notice that the first one ends
PORTS_OF_JOBS = 15_000  # and the 10,000 above: one for each of as many jobs of SLURM


class RankPlace(NamedTuple):
    """The place of a process among those of a run; `local` is its number on its machine, which is that of its GPU."""

    rank: int
    processes: int
    local: int
    address: str
    port: int


def wanted(training: TrainingSettings) -> int:
    """Return how many processes the settings ask for; 1 where they say nothing."""
    return (training.devices or 1) * training.nodes


def place(training: TrainingSettings, environment: Mapping[str, str] = os.environ) -> RankPlace | None:
    """Return the place that torchrun or SLURM gave to this process; None where it is the only one, or the first yet.

    SLURM's variables stand in the environment of a process that is alone, too, so they count only where the settings
    ask for as many processes.

    >>> slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "70012"}
    >>> place(TrainingSettings(devices=2, nodes=2), {**slurm, "SLURM_STEP_NODELIST": "gpu[07-08,12]"})
    RankPlace(rank=3, processes=4, local=1, address='gpu07', port=15012)
    >>> place(TrainingSettings(), slurm)
    """
    if "RANK" in environment and int(environment.get("WORLD_SIZE", "1")) > 1:
        count = int(environment["WORLD_SIZE"])
        if wanted(training) not in (1, count):
            raise UserError(
                f"torchrun started {count} processes, and training.devices and training.nodes ask for "
                f"{wanted(training)}: leave these two out."
            )
        return RankPlace(
            int(environment["RANK"]),
            count,
            int(environment.get("LOCAL_RANK", "0")),
            environment["MASTER_ADDR"],
            int(environment["MASTER_PORT"]),
        )
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", environment.get("SLURM_NTASKS", "1")))
    if wanted(training) > 1 and tasks == wanted(training) and "SLURM_PROCID" in environment:
        nodes = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_NODELIST", "127.0.0.1"))
        job = int(environment.get("SLURM_JOB_ID", "0"))
        return RankPlace(
            int(environment["SLURM_PROCID"]),
            tasks,
            int(environment.get("SLURM_LOCALID", "0")),
            environment.get("MASTER_ADDR", first_host(nodes)),
            int(environment.get("MASTER_PORT", PORTS_OF_JOBS + job % 10_000)),
        )
    return None


def first_host(nodes: str) -> str:
    """Return the first machine of a list in SLURM's way of writing.

    >>> first_host("gpu[07-08,12],login1"), first_host("login1,gpu07"), first_host("10.0.0.7")
    ('gpu07', 'login1', '10.0.0.7')
    """
    found = re.match(r"([^,\[]+)(?:\[([^,\-\]]+))?", nodes)
    return "127.0.0.1" if found is None else found[1] + (found[2] or "")


def was_restarted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun has started this process again after one of them died."""
    return int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@contextmanager
def joined(training: TrainingSettings) -> Iterator[Ranks | None]:
    """Join the other processes of the run, where there are some, and leave them at the end.

    A mistake that all of them find is said by the first that finds it; the others raise Told.
    """
    own = place(training)
    if own is None:
        yield None
        return
    gpu = torch.cuda.is_available() and training.device != "cpu"
    if gpu:
        torch.cuda.set_device(own.local % torch.cuda.device_count())
    store, failed = _store(own, gpu), False
    try:
        yield Ranks()
    except (UserError, OSError) as error:
        failed = True
        if not _is_first_to_say(store):
            raise Told(2) from error
        if isinstance(error, UserError):
            error.is_of_this_process = True
        raise
    except Stopped as stopped:
        if own.rank == 0:
            raise
        raise Told(stopped.exit_code) from stopped
    finally:
        dist.destroy_process_group()
        if failed and own.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            _let_others_ask(store, own.processes)


def _store(own: RankPlace, gpu: bool) -> "Store":
    """Begin to talk with the other processes; return the store that they share."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        # Under torchrun the store is that of its agent, which outlives the processes; else the first process has it.
        shared = next(rendezvous(f"tcp://{own.address}:{own.port}", own.rank, own.processes, timeout=JOINING))[0]
        store = PrefixStore(f"karat-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", shared)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo",
            store=store,
            rank=own.rank,
            world_size=own.processes,
            timeout=LONGEST_WAIT,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"Process {own.rank} of {own.processes} does not reach the others at {own.address}:{own.port} "
            f"({str(error).splitlines()[0]}): check that all were started and that the machines may talk."
        ) from error
    return store


def _let_others_ask(store: "Store", processes: int) -> None:
    """Keep the store, which ends with this process, until the others know that somebody has said what is wrong."""
    ends = time.monotonic() + OTHERS_SECONDS
    while store.add("said", 0) < processes and time.monotonic() < ends:
        time.sleep(0.05)


def _is_first_to_say(store: "Store") -> bool:
    try:
        return store.add("said", 1) == 1
    except RuntimeError:  # the process that had the store is gone
        return True
