"""Files that nobody should send, for every reader: each must be read, or be refused in one sentence.

    python tests/helpers/bad_inputs.py              # the long form: 100 mutations of each kind of file
    python tests/helpers/bad_inputs.py --count 5    # what the tests run

A trial fails where anything but a UserError or an OSError is raised, where it takes longer than 20 s of the processor,
waits for 200 s, or grows by more than a gigabyte.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from making import tar_rows, write_tar
from PIL import Image

from karat.audit.record import load_record
from karat.audit.review import apply_decisions
from karat.audit.run_audit import settings_used, suggest_rows, write_audit
from karat.audit.sample import draw_sample, estimate_sample
from karat.bench.recipe import read_recipe
from karat.cli import main
from karat.commands import COMMANDS
from karat.data.decoding import Unreadable, decode, picture, read_header
from karat.data.noise.label_files import load_labels
from karat.data.readers import read_matrix
from karat.data.sentence_encoder import refuse_code
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import prepare_task
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint, save_checkpoint
from karat.files.metrics_log import read_metrics
from karat.files.tensors import read_tensors, write_tensors
from karat.inference.model import load_model
from karat.inference.new_data import predict_run
from karat.report.page import write_report
from karat.settings.command_line import parse
from karat.settings.read import read_run_config
from karat.training.run import train, train_run
from karat.training.run_folder import chosen_settings

LIMIT_SECONDS = 20  # of the processor
LIMIT_OF_WAITING = 200
LIMIT_BYTES = 2**30
UNICODE = (
    "\u202e",
    "\u0000",
    "\ufeff",
    "é",
    "e\u0301",
    "👩‍👩‍👧",
    "\ud800",
    "\x1b[31m",
    "\u2028",
    "ﷺ",
    "İ",
    "ß",
    "\r",
    "\x85",
    "𝟙",
    "٣",
)

Case = tuple[str, Callable[[], object]]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return the content with one to four kinds of damage."""
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(content) + 1)
        kind = draw.randrange(7)
        if kind == 0:
            content = content[:place]
        elif kind == 1 and content:
            content = content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :]
        elif kind == 2:
            content = content[:place] + content[draw.randrange(len(content) + 1) :]
        elif kind == 3:
            content = content[:place] + draw.randbytes(draw.randint(1, 40)) + content[place:]
        elif kind == 4:
            content = content[:place] + draw.choice(UNICODE).encode("utf-8", "surrogatepass") + content[place:]
        elif kind == 5:
            content = content.replace(b"1", draw.choice((b"nan", b"1e999", b"-0", b"", b"9" * 400)), 3)
        else:
            piece = content[place : place + 30]
            content = content[:place] + piece * draw.randint(2, 50) + content[place:]
    return content


class Corpus:
    """Good files of every kind, to be damaged, and the readers that they belong to."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.run = folder / "run"
        self.data = folder / "data.csv"
        generator = np.random.default_rng(seed)
        rows = pd.DataFrame(generator.normal(size=(60, 3)).round(2), columns=["a", "b", "c"])
        rows["label"] = ["x", "y", "z"] * 20
        rows["trusted"] = [True] * 12 + [False] * 48
        rows.to_csv(self.data, index=False)
        train(self.data, self.run, training={"steps": 4, "device": "cpu"}, method="supervised")
        self.texts, self.text_run = folder / "texts.csv", folder / "text-run"
        words = ("apple pear plum", "car bus train", "red blue green")
        rows = [f"{' '.join(self.draw.choices(words[n % 3].split(), k=5))},{'xyz'[n % 3]},{n < 12}" for n in range(60)]
        self.texts.write_text("\n".join(["text,label,trusted", *rows]) + "\n")
        train(self.texts, self.text_run, training={"steps": 2, "device": "cpu"}, method="supervised")
        draw_sample(self.run, 9)
        sample = (self.run / "sample.csv").read_text().replace(',"",""', ',"keep",""')
        self.decisions = folder / "decisions.csv"
        self.decisions.write_text(sample)
        estimate_sample(self.run, self.decisions)

    def write(self, name: str, content: bytes) -> Path:
        """Write a bad file."""
        path = self.folder / "bad" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    def cases(self, count: int) -> Iterator[tuple[str, str, Callable[[], object]]]:
        """Yield kind, description and what reads it."""
        for kind, content, name, read in self._kinds():
            for number in range(count):
                bad = mutated(content, self.draw)
                yield kind, f"mutation {number}", lambda bad=bad, name=name, read=read: read(self.write(name, bad))
        few = max(6, count)  # of what is made by hand: the tests try some, the long form all
        for kind, made in (
            ("hand-made ledgers", self._ledgers()),
            ("hand-made weights", self._weights()),
            ("hand-made descriptions", self._schemas()),
            ("hand-made notes of a run", self._notes()),
            ("hand-made checkpoints", self._checkpoints()),
            ("commands", self._commands()),
        ):
            tried_ones = list(made)
            for what, read in tried_ones if few >= 30 else self.draw.sample(tried_ones, few):
                yield kind, what, read
        for what, bad in _tables():
            yield "hand-made tables", what, lambda bad=bad: self._task(self.write("bad.csv", bad))
        for what, name, bad in _bombs():
            yield "bombs", what, lambda name=name, bad=bad: self._read_any(self.write(name, bad()))
        for what, text in _configs():
            path = self.folder / "bad" / "config.yaml"
            yield "hand-made configs", what, lambda path=path, text=text: (
                self.write(path.name, text), parse(["train", "digits", "--config", str(path)]),
            )  # fmt: skip
        for what, arguments in _arguments():
            yield "arguments", what, lambda arguments=arguments: parse(arguments)

    def _kinds(self) -> Iterator[tuple[str, bytes, str, Callable[[Path], object]]]:
        yield "tables (.csv)", self.data.read_bytes(), "bad.csv", self._task
        yield "tables (.tsv)", self.data.read_bytes().replace(b",", b"\t"), "bad.tsv", self._task
        yield "tables (.csv.gz)", gzip.compress(self.data.read_bytes()), "bad.csv.gz", self._task
        parquet = io.BytesIO()
        pd.read_csv(self.data).to_parquet(parquet)
        yield "tables (.parquet)", parquet.getvalue(), "bad.parquet", self._task
        shard = write_tar(self.folder / "whole.tar", tar_rows(["x", "y"] * 3, height=4, width=4))
        yield "shards (.tar)", Path(shard).read_bytes(), "bad.tar", self._task
        lines = pd.read_csv(self.texts).to_json(orient="records", lines=True).encode()
        yield "tables of texts (.jsonl)", lines, "bad.jsonl", self._task
        yield "tables of texts (.jsonl.gz)", gzip.compress(lines), "bad.jsonl.gz", self._task
        yield "tables of texts (.csv)", self.texts.read_bytes(), "bad.csv", self._task
        yield "text files in folders", "Ein Satz, der gelesen wird: ä ö ü.".encode() * 9, "bad.txt", self._text_folder
        modules = b'[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]'
        yield "encoders of sentences", modules, "modules.json", self._encoder
        yield "encoders of texts", (self.text_run / "text.safetensors").read_bytes(), "text.safetensors", self._texts
        yield "samples", (self.run / "sample.json").read_bytes(), "sample.json", self._sample
        yield "decisions about a sample", self.decisions.read_bytes(), "bad.csv", self._estimate
        arrays = io.BytesIO()
        np.savez(arrays, train_inputs=np.ones((9, 4), "float32"), train_labels=np.arange(9) % 3)
        yield "arrays (.npz)", arrays.getvalue(), "bad.npz", self._task
        yield "matrices", b"0.9,0.1\n0.2,0.8\n", "bad.csv", read_matrix
        yield "label files", (self.run / "noisy_labels.csv").read_bytes(), "bad.csv", self._labels
        yield "corrections", b"id,label,trusted\n1,x,True\n2,y,False\n", "bad.csv", self._corrections
        yield "decisions", b"id,decision,label\n20,change,x\n21,keep,y\n22,unsure,\n", "bad.csv", self._decisions
        yield (
            "configs",
            (self.run / "config.yaml").read_bytes(),
            "config.yaml",
            lambda path: read_run_config(path.parent),
        )
        recipe = next((Path(__file__).parents[2] / "recipes").glob("*.yaml")).read_bytes()
        yield "recipes", recipe, "bad.yaml", read_recipe
        yield "checkpoints", (self.run / "checkpoint.pt").read_bytes(), "bad.pt", load_checkpoint
        yield "ledgers", (self.run / "ledger.safetensors").read_bytes(), "ledger.safetensors", load_record
        yield "weights", (self.run / "model.safetensors").read_bytes(), "model.safetensors", self._model
        yield "descriptions", (self.run / "schema.json").read_bytes(), "schema.json", self._model
        yield "metrics", (self.run / "metrics.jsonl").read_bytes(), "metrics.jsonl", read_metrics
        names = ("label_issues.csv", "noise_estimate.json", "results.json", "plan.json", "noise.json")
        for name in (*names, "sample_estimate.json", "environment.json"):
            yield "run folders", (self.run / name).read_bytes(), name, self._report
        pixels = Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 9, 3), dtype=np.uint8))
        for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm", "ico"):
            image = io.BytesIO()
            pixels.save(image, kind)
            yield "images", image.getvalue(), f"bad.{kind}", _image

    def _task(self, path: Path) -> object:
        return prepare_task(DataSettings(name=str(path)), NoiseSettings(), 0, None)

    def _read_any(self, path: Path) -> object:
        return _image(path) if path.suffix in (".png", ".gif") else self._task(path)

    def _labels(self, path: Path) -> object:
        return load_labels(path, torch.arange(60), 3, names=("x", "y", "z"))

    def _corrections(self, path: Path) -> object:
        return prepare_task(DataSettings(name=str(self.data), corrections=path), NoiseSettings(), 0, None)

    def _decisions(self, path: Path) -> object:
        return apply_decisions(self.run, path, self.folder / "labels.csv")

    def _beside(self, path: Path, run: Path | None = None) -> Path:
        """Return a copy of the run with the bad file in it, and without checksums that would tell."""
        copy = self._copy(run or self.run)
        shutil.copy(path, copy / path.name)
        return copy

    def _copy(self, run: Path) -> Path:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checksums.json", "report*", "checkpoint*"))
        return copy

    def _model(self, path: Path) -> object:
        return load_model(self._beside(path), "cpu").predict(np.zeros((2, 3), "float32"))

    def _report(self, path: Path) -> object:
        return write_report(self._beside(path))

    def _text_folder(self, path: Path) -> object:
        root = self.folder / "text-folder"
        for number in range(12):
            place = root / ("trusted" if number < 6 else "train") / "xyz"[number % 3]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number}.txt").write_text(f"a text about {'xyz'[number % 3]} {number}")
        shutil.copy(path, root / "train" / "x" / path.name)
        return self._task(root)

    def _encoder(self, path: Path) -> object:
        folder = self.folder / "encoder"
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder / path.name)
        return refuse_code(folder)

    def _texts(self, path: Path) -> object:
        return load_model(self._beside(path, self.text_run), "cpu").predict(["an apple", "a car", ""])

    def _sample(self, path: Path) -> object:
        return estimate_sample(self._beside(path), self.decisions)

    def _estimate(self, path: Path) -> object:
        return estimate_sample(self.run, path)

    def _changed_tensors(self, path: Path) -> Iterator[tuple[str, dict[str, torch.Tensor], dict[str, str]]]:
        """Yield files of tensors that can be read, and that no run would write."""
        tensors, metadata = read_tensors(path)
        for name, tensor in tensors.items():
            yield f"without {name}", {key: tensors[key] for key in tensors if key != name}, metadata
            yield f"{name} of another shape", {**tensors, name: torch.zeros(3, 3, 3)}, metadata
            if tensor.dim() and tensor.numel():
                yield f"{name} without its last row", {**tensors, name: tensor[:-1].clone()}, metadata
            odd = float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).max
            yield f"{name} all {odd}", {**tensors, name: torch.full_like(tensor, odd)}, metadata
        for classes in ("[]", "{", "null", "[1]", '["x", "y", "z", "x"]', '["\\u001b[2J", "<b>", "=1+1"]', "7"):
            yield f"classes {classes}", tensors, {**metadata, "classes": classes}

    def _ledgers(self) -> Iterator[Case]:
        uses: tuple[Callable[[Path], object], ...] = (
            write_audit,
            lambda run: draw_sample(run, 5),
            lambda run: suggest_rows(run, 5),
            lambda run: estimate_sample(run, self.decisions),
            lambda run: apply_decisions(run, self.decisions, self.folder / "labels.csv", "cleaned"),
        )
        for number, (what, tensors, metadata) in enumerate(self._changed_tensors(self.run / "ledger.safetensors")):
            use = uses[number % len(uses)]
            yield (
                what,
                lambda tensors=tensors, metadata=metadata, use=use: use(
                    self._with_tensors("ledger.safetensors", tensors, metadata)
                ),
            )

    def _weights(self) -> Iterator[Case]:
        for run, name, new in (
            (self.run, "model.safetensors", np.zeros((2, 3), "float32")),
            (self.text_run, "text.safetensors", ["an apple"]),
        ):
            for what, tensors, metadata in self._changed_tensors(run / name):
                yield (
                    what,
                    lambda run=run, name=name, new=new, tensors=tensors, metadata=metadata: load_model(
                        self._with_tensors(name, tensors, metadata, run), "cpu"
                    ).predict(new),
                )

    def _with_tensors(
        self, name: str, tensors: dict[str, torch.Tensor], metadata: dict[str, str], run: Path | None = None
    ) -> Path:
        copy = self._copy(run or self.run)
        write_tensors(copy / name, tensors, metadata)
        return copy

    def _schemas(self) -> Iterator[Case]:
        good = json.loads((self.run / "schema.json").read_text())
        odd = (None, 7, -1, 10**9, [], [7], {}, "x", "mlp-99999", "hf-hub:a/b", "../x", [10**12], [{}], 1e308, True)
        for name in good:
            for value in odd:
                yield f"{name}: {value}", lambda name=name, value=value: self._described({**good, name: value})
        for name in good["schema"]:
            for value in (*odd, {"kind": "tfidf"}, {"kind": "other", "name": "/", "digest": ""}):
                inner = {**good["schema"], name: value}
                yield f"schema.{name}: {value}", lambda inner=inner: self._described({**good, "schema": inner})

    def _described(self, values: object) -> object:
        copy = self._copy(self.run)
        (copy / "schema.json").write_text(json.dumps(values))
        return predict_run(copy, str(self.data), copy / "predictions.csv")

    def _notes(self) -> Iterator[Case]:
        for name in ("plan", "results", "noise_estimate", "reliability", "sample_estimate", "noise", "environment"):
            path = self.run / f"{name}.json"
            keys = list(json.loads(path.read_text())) if path.exists() else ["bins", "brier"]
            texts = ["[]", "", "null", "[" * 10**5, '{"rate": NaN, "chosen": Infinity}']
            for value in ("<img src=x onerror=alert(1)>\x1b[2J", 1e308, {"a": [{}]}, [], None, -1):
                texts.append(json.dumps(dict.fromkeys(keys, value)))
            for text in texts:
                yield f"{name}: {text[:20]!r}", lambda name=name, text=text: self._noted(f"{name}.json", text)

    def _noted(self, name: str, text: str) -> object:
        copy = self._copy(self.run)
        (copy / name).write_text(text)
        return chosen_settings(copy), settings_used(copy), write_report(copy)

    def _checkpoints(self) -> Iterator[Case]:
        state = load_checkpoint(self.run / "checkpoint.pt")
        for name in state:
            for value in (None, {}, [], 7, "x"):
                yield f"{name}: {value}", lambda name=name, value=value: self._resumed({**state, name: value})
        trainer = state["trainer"]
        for name in trainer:
            for value in (None, {}, torch.zeros(2), -1, "x"):
                changed = {**state, "trainer": {**trainer, name: value}}
                yield f"trainer.{name}: {value}", lambda changed=changed: self._resumed(changed)

    def _resumed(self, state: dict[str, Any]) -> object:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.run, copy, ignore=shutil.ignore_patterns("checksums.json", "report*"))
        save_checkpoint(copy / "checkpoint.pt", state)
        with contextlib.redirect_stderr(io.StringIO()):
            return train_run(read_run_config(copy), copy, resume=True, report=False)

    def _commands(self) -> Iterator[Case]:
        """Yield commands that must be refused, with exit code 2 and a sentence."""
        place = self.folder / "places"
        place.mkdir(exist_ok=True)
        for name in ("empty.csv", "empty.jsonl", "empty.parquet", "empty.npz"):
            (place / name).touch()
        (place / "folder.csv").mkdir(exist_ok=True)
        if not (place / "pipe.csv").exists():
            os.mkfifo(place / "pipe.csv")
            (place / "loop.csv").symlink_to("loop.csv")
            (place / "nowhere.csv").symlink_to("gone.csv")
        paths = [str(path) for path in sorted(place.iterdir())]
        paths += [str(place / "missing.csv"), str(place), "/dev/null", "/dev/zero", "", "\x1b[2J.csv", "n" * 5000, "\0"]
        run, data = str(self.run), str(self.data)
        for path in paths:
            yield from self._refusals(
                ("train", path, "--run", str(place / "new")),
                ("suggest", path, "--run", str(place / "new")),
                ("predict", run, path),
                ("evaluate", run, path),
                ("estimate", run, path),
                ("apply", run, path),
                ("audit", path),
                ("sample", path),
                ("report", path),
                ("train", data, "--data.corrections", path, "--run", str(place / "new")),
                ("train", data, "--config", path, "--run", str(place / "new")),
            )
        for number in ("0", "-1", "nan", "1.5", "x", "", "null"):
            yield from self._refusals(("sample", run, "--count", number), ("suggest", run, "--count", number))
        for seed in ("-1", "9" * 40, "x"):
            yield from self._refusals(("sample", run, "--seed", seed), ("suggest", data, "--seed", seed))
        for rate in ("-0.1", "1.1", "nan", "x"):
            yield from self._refusals(("audit", run, "--audit.error_rate", rate))
        for minutes in ("0", "-1", "nan", "inf", "x"):
            yield from self._refusals(("train", data, "--training.minutes", minutes, "--run", str(place / "new")))
        for command in COMMANDS:
            yield from self._refusals((command, "--bogus"), (command, "a", "b", "c", "d", "e"))

    @staticmethod
    def _refusals(*commands: tuple[str, ...]) -> Iterator[Case]:
        for command in commands:
            yield " ".join(command)[:80], lambda command=command: _refused(command)


def _refused(command: tuple[str, ...]) -> None:
    """Raise where a command does not end with exit code 2 and something harmless to read."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = main(list(command))
        except SystemExit as ending:
            code = ending.code
    said = output.getvalue()
    if code != 2 or not said.strip() or "\x1b" in said:
        raise AssertionError(f"exit code {code}: {said[-300:]!r}")


def _image(path: Path) -> None:
    content = path.read_bytes()
    for read in (read_header, picture, lambda image: decode(image, (3, 8, 8))):
        with contextlib.suppress(Unreadable):
            read(content)


def _tables() -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "a line end alone", b"\n"
    yield "names alone", b"a,b,label\n"
    yield "no label column", b"a,b\n1,2\n"
    yield "two columns of one name", b"a,a,label\n1,2,x\n"
    yield "one class", b"a,label\n" + b"1,x\n" * 50
    yield "a class a row", b"a,label\n" + b"".join(b"%d,c%d\n" % (n, n) for n in range(500))
    yield "a million classes", b"a,label\n" + b"".join(b"1,%d\n" % n for n in range(10**6))
    yield "a name of 10 kB", b"a,label\n" + b"1,x\n2,y\n" * 20 + b"3," + b"n" * 10_000 + b"\n"
    yield "a column name of 10 kB", b"n" * 10_000 + b",label\n" + b"1,x\n2,y\n" * 20
    yield "a line of 50 MB", b"a,label\n" + b"1" * 50_000_000 + b",x\n"
    yield "ten thousand columns", b",".join(b"c%d" % n for n in range(10_000)) + b",label\n"
    yield "an open quote", b'a,label\n"1,x\n' + b"2,y\n" * 1000
    yield "UTF-16", "a,label\n1,x\n".encode("utf-16")
    yield "Latin-1", "a,label\n1,é\n".encode("latin-1")
    yield "zeros", bytes(10_000)
    yield "a zip under the name of a table", b"PK\x03\x04" + bytes(100)
    yield "infinite numbers", b"a,label,trusted\n" + b"inf,x,True\n-inf,y,True\n1e400,x,False\n" * 20
    for number, mark in enumerate(UNICODE):
        cell = f'a,label,trusted\n1,"{mark}",True\n2,y,True\n'.encode("utf-8", "surrogatepass") * 1
        yield (
            f"Unicode {number} as a class",
            cell + f'1,"{mark}",False\n2,y,False\n'.encode("utf-8", "surrogatepass") * 20,
        )
        yield f"Unicode {number} as a column", f'"{mark}",label\n'.encode("utf-8", "surrogatepass") + b"1,x\n2,y\n" * 20
    for formula in (
        "=1+1",
        "@SUM(A1)",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "\t=1",
        "../../etc/passwd",
        "<script>alert(1)</script>",
    ):
        yield (
            f"{formula!r} as a class",
            f"a,label\n1,{formula}\n2,y\n".encode() * 1 + f"1,{formula}\n2,y\n".encode() * 20,
        )


def _bombs() -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    def zip_of(size: int) -> bytes:
        """Return an .npz whose member claims to hold a huge array of zeros."""
        archive = io.BytesIO()
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (size // 4, 1)})
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("train_inputs.npy", header.getvalue() + bytes(1000))
        return archive.getvalue()

    def png_of(side: int) -> bytes:
        import struct
        import zlib as z

        def chunk(kind: bytes, content: bytes) -> bytes:
            return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", z.crc32(kind + content))

        head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        return (
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", head)
            + chunk(b"IDAT", z.compress(bytes(10_000)))
            + chunk(b"IEND", b"")
        )

    yield "an .npz that claims 1 TB", "bomb.npz", lambda: zip_of(2**40)
    yield "an .npz that claims 2**62 bytes", "bomb.npz", lambda: zip_of(2**62)
    yield "a picture of 60,000 x 60,000", "bomb.png", lambda: png_of(60_000)
    yield "a picture of 2**31 x 2**31", "bomb.png", lambda: png_of(2**31 - 1)
    yield "a packed table in a packed table", "bomb.csv.gz", lambda: gzip.compress(gzip.compress(bytes(10**7)))
    yield "100 MB of zeros, packed", "bomb.csv.gz", lambda: gzip.compress(b"a,label\n" + bytes(10**8))


def _configs() -> Iterator[tuple[str, bytes]]:
    yield "a list", b"- a\n- b\n"
    yield "a Python object", b"!!python/object/apply:os.system ['echo hacked']\n"
    yield "a Python name", b"seed: !!python/name:os.system\n"
    aliases = b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    for one, two in zip("abcdefgh", "bcdefghi", strict=True):
        aliases += f"{two}: &{two} [{','.join([f'*{one}'] * 9)}]\n".encode()
    yield "a billion laughs", aliases
    yield "an alias of itself", b"a: &a [*a]\n"
    yield "deep nesting", b"[" * 20_000
    yield "deep sections", b"".join(b" " * n + b"a:\n" for n in range(2000))
    yield "tabs", b"\tseed: 1\n"
    yield "a path out of the folder", b"data: {name: ../../../etc/passwd}\n"
    yield "a number of 5,000 digits", b"seed: " + b"9" * 5000 + b"\n"
    for value in ("nan", ".inf", "null", "[]", "{}", "''", "!!binary aGk=", "2001-01-01", "0x10", "1e999"):
        for name in ("seed", "training", "optimizer.rate", "method"):
            yield f"{name}: {value}", f"{name}: {value}\n".encode()


def _arguments() -> Iterator[tuple[str, list[str]]]:
    for value in (
        "",
        "\x00",
        "-1",
        "nan",
        "1e999",
        "9" * 400,
        "{",
        "[[[[",
        "\ud800",
        "a" * 100_000,
        "!!python/name:os",
    ):
        for option in (
            "--seed",
            "--training.steps",
            "--optimizer.rate",
            "--method",
            "--noise.class_map",
            "--data.name",
        ):
            yield f"{option} {value[:12]!r}", ["train", "digits", option, value]


def peak() -> int:
    """Return the most bytes that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10


class TookTooLong(BaseException):
    """A reader hangs."""


def tried(read: Callable[[], object]) -> str | None:
    """Return what is wrong with how a reader took a bad file; None where it read it or said one sentence."""

    def ring(*arguments: Any) -> None:
        raise TookTooLong

    before, began = peak(), time.monotonic()
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, ring)
    signal.alarm(LIMIT_OF_WAITING)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read()
    except (UserError, OSError) as error:
        if not str(error).strip() or "\x1b" in str(error):
            return f"an empty sentence, or one with an escape: {error!r}"
    except SystemExit:
        pass
    except TookTooLong:
        return f"it hangs: {time.monotonic() - began:.0f} s"
    except BaseException as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    if peak() - before > LIMIT_BYTES:
        return f"grew by {(peak() - before) / 2**20:.0f} MB in {time.monotonic() - began:.1f} s"
    return None


def run_bad_inputs(count: int, seed: int) -> tuple[dict[str, int], list[str]]:
    """Try all of them; return how many of each kind, and what failed."""
    counts: dict[str, int] = {}
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, what, read in Corpus(Path(folder), seed).cases(count):
            counts[kind] = counts.get(kind, 0) + 1
            problem = tried(read)
            if problem:
                failures.append(f"{kind}: {what}: {problem}")
    return counts, failures


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    found, failed = run_bad_inputs(given.count, given.seed)
    for kind, number in found.items():
        print(f"{kind:25s} {number - sum(failure.startswith(f'{kind}: ') for failure in failed):5d} of {number:5d}")
    print(f"{'all':25s} {sum(found.values()) - len(failed):5d} of {sum(found.values()):5d}")
    for failure in failed:
        print(f"FAILED {failure}")
    sys.exit(1 if failed else 0)
