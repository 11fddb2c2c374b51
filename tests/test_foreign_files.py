"""Files and folders that somebody else made: nothing in them runs, hangs, fills the memory or ends in a traceback."""

import io
import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from karat import commands
from karat.audit.sample import draw_sample
from karat.cli import main
from karat.data import images
from karat.data.decoding import Unreadable, picture, read_bytes, read_header
from karat.data.images import ImageFiles
from karat.data.sentence_encoder import refuse_code
from karat.data.sources.folders import TEXT_FILE_ENDINGS, file_content
from karat.data.sources.table_files import read_table
from karat.errors import UserError, say
from karat.inference.device import make_deterministic
from karat.methods.shared.forest import PARTS, Forest, with_trees_of
from karat.training import build
from karat.training.build import refuse_huge

MODULE = '[{"idx": 0, "name": "0", "path": "", "type": "%s"}]'


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("modules.json", MODULE % "joblib.numpy_pickle", "joblib.numpy_pickle"),
        ("modules.json", MODULE % "modeling_mine.Mine", "no part of sentence-transformers"),
        ("modules.json", '{"a"', "modules.json is damaged"),
        ("modeling_mine.py", "import os", "is code"),
        ("0_Transformer/pytorch_model.bin", "x", "may hold code"),
    ],
)
def test_an_encoder_that_brings_code_is_refused(tmp_path, name, content, said):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(UserError, match=said):
        refuse_code(tmp_path)


def test_an_encoder_of_plain_weights_is_taken(tmp_path):
    (tmp_path / "modules.json").write_text(MODULE % "sentence_transformers.models.Transformer")
    for name in ("model.safetensors", "pytorch_model.bin"):  # the library takes the first one
        (tmp_path / name).touch()
    refuse_code(tmp_path)


def test_pictures_that_another_program_would_draw_are_not_read():
    drawing = io.BytesIO()
    Image.new("RGB", (4, 4)).save(drawing, "EPS")
    for read in (read_header, picture):
        with pytest.raises(Unreadable, match="not in a format of images"):
            read(drawing.getvalue())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are files on Unix alone")
def test_pipes_and_devices_are_no_files(tmp_path):
    """Whoever opened one of these would wait, or read, without end."""
    place = tmp_path / "class"
    place.mkdir()
    os.mkfifo(place / "pipe.png")
    (place / "zero.png").symlink_to("/dev/zero")
    for path in place.iterdir():
        for read in (read_bytes, read_header):
            with pytest.raises(Unreadable, match="a pipe or a device"):
                read(str(path))
    os.mkfifo(place / "pipe.txt")
    content = file_content([str(place / "pipe.txt")], TEXT_FILE_ENDINGS)
    assert content.unreadable == ["it is no file but a pipe, a device or a link to nowhere"]


def test_a_text_file_that_is_too_long_is_not_read(tmp_path):
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(2**33)  # eight gigabytes of zeros, of which the disk holds none
    content = file_content([str(tmp_path / "a.txt")], TEXT_FILE_ENDINGS)
    assert content.texts == [""]
    assert content.unreadable == ["it has more than 1,000,000 characters"]


def test_a_long_line_of_json_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "' + b"a" * (17 * 2**20) + b'"}\n')
    with pytest.raises(UserError, match="a line of more than 16 MB"):
        read_table(tmp_path / "a.jsonl")


def forest(**changes):
    """Return one tree of three nodes over two features: a root and its two leaves."""
    nodes = {
        "feature": torch.zeros(1, 1, 2, 3, dtype=torch.long),
        "threshold": torch.zeros(1, 1, 2, 3, dtype=torch.double),
        "left": torch.tensor([1, 1, 2]).expand(1, 1, 2, 3).clone(),
        "right": torch.tensor([2, 1, 2]).expand(1, 1, 2, 3).clone(),
        "value": torch.tensor([0.0, -1.0, 1.0]).double().expand(1, 1, 2, 3).clone(),
        "baseline": torch.zeros(1, 2, dtype=torch.double),
        "votes": torch.ones(1, dtype=torch.double),
    }
    rest = {"transition": torch.eye(2), "shares": torch.full((2,), 0.5), "share": torch.tensor(0.5)}
    return {**nodes, **rest, **changes}


def test_trees_whose_nodes_lead_in_a_circle_come_to_an_end():
    circle = torch.tensor([1, 0, 2]).expand(1, 1, 2, 3).clone()
    parts = forest(left=circle, right=circle)
    found = Forest(*(parts[name] for name in Forest._fields)).predict(torch.zeros(4, 2))
    assert found.shape == (4, 2)


@pytest.mark.parametrize("name", ["feature", "left", "right"])
def test_trees_that_look_beyond_their_end_are_refused(name):
    assert set(forest()) == set(PARTS)
    wrong = torch.full((1, 1, 2, 3), 7)
    with pytest.raises(ValueError, match=f"{name} of a tree is not below"):
        with_trees_of(forest(**{name: wrong}), nn.Linear(2, 2), features=2)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_no_generator_takes_is_refused(tmp_path, seed):
    with pytest.raises(UserError, match="--seed is"):
        draw_sample(tmp_path, 5, seed)


def test_what_is_printed_does_not_steer_the_terminal(capsys):
    say("a\x1b[2Jb\ncaf\udce9")
    assert capsys.readouterr().out == "a\ufffd[2Jb\ncaf\ufffd\n"


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")]
)
def test_memory_that_does_not_suffice_is_said(monkeypatch, capsys, error):
    def fail(options):
        raise error

    monkeypatch.setitem(commands.COMMANDS, "audit", fail)
    assert main(["audit", "run"]) == 2
    assert "the memory does not suffice" in capsys.readouterr().err
    error.args = ("something else",)
    if isinstance(error, RuntimeError):
        with pytest.raises(RuntimeError, match="something else"):
            main(["audit", "run"])


def test_a_network_that_fills_the_memory_is_refused_before_it_is_built(monkeypatch):
    """An mlp-1000 of 2 features and 3 classes has about 1000·1000 parameters of 16 bytes."""
    monkeypatch.setattr(build, "free_memory", lambda: 10 * 2**20)
    refuse_huge("mlp-100", (2,), 3)
    refuse_huge("mlp", (2,), 3)
    with pytest.raises(UserError, match=r"parameters, which need 0\.0 GB of memory in training"):
        refuse_huge("mlp-1000", (2,), 3)
    with pytest.raises(UserError, match="100,000 at most"):
        refuse_huge("resnet-1000000001", (3, 32, 32), 3)


def test_pictures_are_the_same_bits_for_any_number_of_threads(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    paths = [str(tmp_path / f"{number}.png") for number in range(40)]
    for path in paths:
        Image.fromarray(generator.integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(path)
    found = []
    for workers in (1, 3, 16):
        monkeypatch.setattr(images, "_WORKERS", workers)
        found.append(ImageFiles(paths, 8)[torch.arange(40).flip(0)])
    assert all(torch.equal(found[0], one) for one in found)


def test_deterministic_is_asked_of_a_gpu_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    make_deterministic(torch.device("cpu"))
    assert asked == []
    make_deterministic(torch.device("cuda"))
    assert asked == [True]
