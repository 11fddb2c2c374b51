"""The short forms of the fault harness and of the bad inputs; their long forms are commands (docs/reliability.md)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bad_inputs import run_bad_inputs

from karat.audit.reliability import true_labels
from karat.cli import main
from karat.errors import UserError
from karat.files.atomic import replacing
from karat.files.metrics_log import MetricsLog
from karat.training.run_checkpoint import settle
from karat.training.run_folder import chosen_settings

HELPERS = Path(__file__).parent / "helpers"

linux = pytest.mark.skipif(sys.platform != "linux", reason="faults are injected by means of Linux")


@linux
def test_runs_survive_faults():
    command = [sys.executable, str(HELPERS / "faults.py"), "--short"]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@linux
def test_bad_inputs_are_refused_in_a_sentence():
    seed = int.from_bytes(os.urandom(2), "big")
    counts, failures = run_bad_inputs(count=1, seed=seed)
    assert failures == [], f"bad inputs of the seed {seed}"
    assert sum(counts.values()) > 200


def test_half_written_files_are_put_away(tmp_path):
    for name in (".config.yaml.77.tmp", ".tmpQsSheH"):
        (tmp_path / name).touch()
    settle(tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_through_a_symbolic_link(tmp_path):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    links = ["metrics.jsonl", ".lock", f".config.yaml.{os.getpid()}.tmp"]
    for name in links:
        (folder / name).symlink_to(victim)
    with pytest.raises(UserError, match="symbolic link"):
        MetricsLog(folder / "metrics.jsonl")
    with pytest.raises(UserError, match="symbolic link"), replacing(folder / "config.yaml"):
        pass
    assert main(["train", "wine", "--run", str(folder), "--training.steps", "1"]) == 2
    (folder / "report.html").symlink_to(victim)
    with replacing(folder / "report.html") as temporary:
        temporary.write_text("page")
    assert victim.read_text() == "precious"


def test_messages_do_not_steer_the_terminal(tmp_path, capsys):
    path = tmp_path / "\x1b[2Jevil.csv"
    assert main(["train", str(path)]) == 2
    said = capsys.readouterr().err
    assert "evil.csv" in said
    assert "\x1b" not in said


def test_a_plan_of_other_settings_chose_nothing(tmp_path):
    (tmp_path / "plan.json").write_text('{"chosen": ["optioizer.rate", "model"]}')
    assert chosen_settings(tmp_path) == {"model"}


@pytest.mark.parametrize("rows", ["index,true_label\n0,\n", "true_label\n1\n", "index,true_label\n0,x\n"])
def test_damaged_true_labels_are_said(tmp_path, rows):
    (tmp_path / "noisy_labels.csv").write_text(rows)
    with pytest.raises(UserError, match=r"noisy_labels.csv is damaged"):
        true_labels(tmp_path / "noisy_labels.csv", None)
