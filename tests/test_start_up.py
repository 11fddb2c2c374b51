"""What a user waits for before anything happens: help and mistakes load none of the heavy libraries."""

import json
import subprocess
import sys

import pytest

from karat.methods import METHODS
from karat.methods.settings import MethodSettings
from karat.settings.config import Config

HEAVY = {"torch", "sklearn", "pandas", "numpy", "scipy", "matplotlib", "kornia", "timm"}
PROBE = """
import json, sys
from karat.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
print(json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["train", "--help"], 0),
        (["predict", "--help"], 0),
        (["bench", "--help"], 0),
        (["tarin"], 2),
        (["train", "digits", "--method", "karta"], 2),
        (["train", "digits", "--trainin.steps", "3"], 2),
        (["train", "digits", "--training.steps", "many"], 2),
        (["train", "digits", "--seed", "-1"], 2),
        (["train", "--resume"], 2),
        (["apply", "run"], 2),
    ],
)
def test_help_and_mistakes_load_nothing_heavy(arguments, code, tmp_path):
    ended = subprocess.run([sys.executable, "-c", PROBE, *arguments], cwd=tmp_path, capture_output=True, text=True)
    found, loaded = json.loads(ended.stderr.splitlines()[-1])
    assert found == code, ended.stderr
    assert HEAVY.isdisjoint(loaded)
    assert not list(tmp_path.iterdir())


def test_missing_data_name_no_folder(tmp_path, monkeypatch, capsys):
    from karat.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["train", "missing.csv"]) == 2
    said = capsys.readouterr().err
    assert "missing.csv" in said
    assert "runs" not in said
    assert not (tmp_path / "runs").exists()


def test_settings_belong_to_methods():
    assert set(vars(MethodSettings())) <= METHODS.keys()
    assert Config().method in METHODS
