"""Start the processes of a run on this machine, by what torchrun does, and wait for them."""

import json
import logging
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from karat.errors import Told, UserError
from karat.settings.config import Config, config_as_dict
from karat.settings.read import read_config

STOPPING_SECONDS = 25  # for a checkpoint after the step that is being taken; then processes are killed


@dataclass(frozen=True)
class Work:
    """What the processes are to do; see `train_run`."""

    config: Config
    folder: Path
    resume: bool
    report: bool
    name_folder: bool


def write_work(work: Work, path: Path) -> None:
    """Write what is to be done, for `read_work`."""
    plain = {**vars(work), "config": config_as_dict(work.config), "folder": str(work.folder.absolute())}
    path.write_text(json.dumps(plain))


def read_work(path: Path) -> Work:
    """Read what is to be done."""
    plain = json.loads(path.read_text())
    return Work(**{**plain, "config": read_config(plain["config"]), "folder": Path(plain["folder"])})


def launch(work: Work) -> None:
    """Start a process for each device and wait for all; raise Told where one of them said what is wrong."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    training = work.config.training
    if training.nodes > 1:
        raise UserError(
            f"training.nodes is {training.nodes}, and this command was not started on several machines: start it with "
            "torchrun or srun on each of them (docs/scale.md)."
        )
    devices = training.devices or 1
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # it would tell of every process that ends
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _cores() // devices)))
    with tempfile.TemporaryDirectory(prefix="karat-") as folder:
        path = Path(folder) / "work.json"
        write_work(work, path)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=devices,
            run_id=Path(folder).name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            shutdown_timeout=STOPPING_SECONDS,
        )
        try:
            elastic_launch(config, sys.executable)("-m", "karat.worker", str(path))
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode >= 0:
                raise Told(failure.exitcode) from None
            raise UserError(
                f"Process {rank} of {devices} was ended by {failure.signal_name()}: "
                f"`karat train --resume --run {work.folder}` continues."
            ) from None
        except SignalException as error:  # the first process has said how to go on
            raise Told(128 + int(error.sigval)) from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
