"""Files that nobody should send, for every reader: each must be read, or be refused in one sentence.

    python tests/helpers/bad_inputs.py              # the long form: 100 mutations of each kind of file
    python tests/helpers/bad_inputs.py --count 5    # what the tests run

A trial fails where anything but a UserError or an OSError is raised, where it takes longer than 20 s, or where the
process grows by more than a gigabyte.
"""

import argparse
import contextlib
import gzip
import io
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
from PIL import Image

from karat.audit.record import load_record
from karat.audit.review import apply_decisions
from karat.bench.recipe import read_recipe
from karat.data.decoding import Unreadable, decode, picture, read_header
from karat.data.noise.label_files import load_labels
from karat.data.readers import read_matrix
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import prepare_task
from karat.errors import UserError
from karat.files.checkpoints import load_checkpoint
from karat.files.metrics_log import read_metrics
from karat.inference.model import load_model
from karat.report.page import write_report
from karat.settings.command_line import parse
from karat.settings.read import read_run_config
from karat.training.run import train

LIMIT_SECONDS = 20
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
        for name in ("label_issues.csv", "noise_estimate.json", "results.json", "plan.json", "noise.json"):
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

    def _beside(self, path: Path) -> Path:
        """Return a copy of the run with the bad file in it, and without checksums that would tell."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.run, copy, ignore=shutil.ignore_patterns("checksums.json", "report*", "checkpoint*"))
        shutil.copy(path, copy / path.name)
        return copy

    def _model(self, path: Path) -> object:
        return load_model(self._beside(path), "cpu").predict(np.zeros((2, 3), "float32"))

    def _report(self, path: Path) -> object:
        return write_report(self._beside(path))


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
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT_SECONDS)
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
        return f"longer than {LIMIT_SECONDS} s"
    except BaseException as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        signal.alarm(0)
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
