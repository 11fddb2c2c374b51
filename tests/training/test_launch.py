"""Runs of several processes from the command line: started, killed, restarted, stopped, wrong in one way or another."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from together import Command

import karat.training.run  # noqa: F401  before a process is forked
from karat.cli import main
from karat.errors import UserError
from karat.settings.config import Config, TrainingSettings
from karat.training.launch import Work, read_work, write_work
from karat.training.processes import first_host, place, wanted, was_restarted
from karat.training.run import train

OPTIONS = [
    *("train", "wine", "--method", "ieg", "--model", "mlp-8", "--noise.kind", "uniform", "--noise.rate", "0.4"),
    *("--data.trusted_per_class", "3", "--training.steps", "16", "--training.checkpoint_every", "2"),
    *("--training.device", "cpu", "--training.threads", "1"),
]


def model_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def steps_in(folder: Path) -> int:
    ledgers = [int(path.stem.removeprefix("ledger-")) for path in folder.glob("ledger-*.safetensors")]
    return max(ledgers, default=0)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run of one process."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    assert main([*OPTIONS, "--run", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_others_and_a_restarted_group_goes_on_unasked(killed, straight, tmp_path):
    """One is killed after a checkpoint; the same command, started again by torchrun, ends as one process does."""
    folder = tmp_path / "run"
    command = Command(2, [*OPTIONS, "--run", str(folder)], tmp_path / "first.log")
    while steps_in(folder) < 2:
        time.sleep(0.005)
    os.kill(command.processes[killed], signal.SIGKILL)
    began = time.monotonic()
    assert command.wait() == ([-signal.SIGKILL, 2] if killed == 0 else [2, -signal.SIGKILL])
    assert time.monotonic() - began < 30
    assert command.said.count("karat: Another process of this run has ended") == 1
    assert "Traceback" not in command.said
    assert 2 <= steps_in(folder) < 16

    again = Command(2, [*OPTIONS, "--run", str(folder)], tmp_path / "second.log", TORCHELASTIC_RESTART_COUNT="1")
    assert again.wait() == [0, 0], again.said
    assert again.said.count("Everything is in") == 1, "the others are quiet"
    for name, weights in model_of(straight).items():
        torch.testing.assert_close(model_of(folder)[name], weights, rtol=1e-2, atol=1e-2)  # float32, 16 steps


def test_one_asked_process_stops_all_with_a_checkpoint(tmp_path):
    command = Command(2, [*OPTIONS, "--run", str(tmp_path / "run"), "--training.steps", "2000"], tmp_path / "log")
    while steps_in(tmp_path / "run") < 2:
        time.sleep(0.05)
    os.kill(command.processes[1], signal.SIGTERM)
    assert command.wait() == [143, 143]
    assert command.said.count("stopped after step") == 1
    assert "Traceback" not in command.said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*OPTIONS, "--data.name", "wine", "--data.limit", "10", "--run", "{}"], "karat:"),
        (["train", "missing.csv", "--run", "{}"], "missing.csv"),
        (["train", "wine"], "write --run FOLDER"),
        ([*OPTIONS, "--run", "{}", "--training.devices", "3"], "leave these two out"),
    ],
)
def test_a_mistake_is_said_once(arguments, sentence, tmp_path):
    filled = [argument.format(tmp_path / "run") for argument in arguments]
    command = Command(2, filled, tmp_path / "log")
    assert command.wait() == [2, 2]
    assert sentence in command.said
    assert command.said.count("karat:") == 1, command.said
    assert "Traceback" not in command.said


def test_devices_start_processes_and_return_what_they_found(tmp_path):
    """The real thing, once: two processes of their own, a run folder, and predictions by its model."""
    run = tmp_path / "run"
    settings = {"method": "l2r", "model": "mlp-8", "training": {"steps": 4, "device": "cpu", "devices": 2}}
    result = train("wine", run, **settings, data={"trusted_per_class": 3})
    stored = json.loads((run / "results.json").read_text())
    assert result.selected.top1 == stored["selected"]["top1"]
    assert json.loads((run / "environment.json").read_text())["processes"] == 2
    assert main(["evaluate", str(run)]) == 0


def test_several_machines_need_torchrun():
    config = replace(Config(), training=TrainingSettings(devices=2, nodes=2))
    with pytest.raises(UserError, match="torchrun or srun"):
        train(config, "nowhere")
    assert not Path("nowhere").exists()


def test_work_survives_its_file(tmp_path):
    work = Work(replace(Config(), seed=3), tmp_path / "run", resume=False, report=True, name_folder=False)
    write_work(work, tmp_path / "work.json")
    assert read_work(tmp_path / "work.json") == work


def test_places_are_read_from_torchrun_and_slurm():
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "7"}
    assert place(TrainingSettings(), torchrun) == (1, 2, 1, "here", 7)
    assert place(TrainingSettings(devices=2), torchrun) == (1, 2, 1, "here", 7)
    assert place(TrainingSettings(), {**torchrun, "WORLD_SIZE": "1", "RANK": "0"}) is None
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NODELIST": "a7,b"}
    assert place(TrainingSettings(devices=4), slurm) == (0, 4, 0, "a7", 15_000)
    assert place(TrainingSettings(devices=2), slurm) is None, "a process that is alone in a job of four tasks"
    assert wanted(TrainingSettings(devices=2, nodes=3)) == 6
    assert was_restarted({"TORCHELASTIC_RESTART_COUNT": "1"})
    assert not was_restarted({})
    assert first_host("n[3-4]") == "n3"
