"""Train on digits again and again, killed at random moments, and look for what grows.

    python tests/helpers/soak.py --minutes 120

Each run is a chain of processes on one folder: started, ended by SIGKILL, SIGTERM or SIGINT after a random part of the
processor time that the whole run takes, gone on with, until it is finished; then it is compared, bit for bit, with the
undisturbed run of its method. After each finished run another process, which lives as long as the soak, trains once
more in itself. In the end: whether models differ, and whether memory, descriptors or files grew.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

STEPS = {"supervised": 60, "ieg": 30, "karat": 60}  # so few that many runs come to their end
RESULTS = ("model.safetensors", "label_issues.csv", "cleaned_labels.csv", "noise_estimate.json")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENDINGS = {-signal.SIGKILL, *(code for number in SIGNALS[1:] for code in (-number, 128 + number))}
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
GROWTH = 1.05  # of memory, from the first half of the time to the second one: more is a leak

ONE = """
import pathlib, sys
from karat.cli import main
pathlib.Path(sys.argv[1]).touch()
sys.exit(main(sys.argv[2:]))
"""
MANY = """
import json, os, sys, threading
from karat.cli import main
for line in sys.stdin:
    code = main(json.loads(line))
    pages = int(open("/proc/self/statm").read().split()[1])
    sys.stdout.flush()
    print("SEEN", json.dumps([code, pages, len(os.listdir("/proc/self/fd")), threading.active_count()]), flush=True)
"""


class Seen(NamedTuple):
    """One process: its method, the most bytes and descriptors that it had, and how it ended."""

    method: str
    memory: int
    descriptors: int
    code: int


def training(method: str, folder: Path) -> list[str]:
    """Return the command that begins a run or goes on with it."""
    if (folder / "config.yaml").exists():
        return ["train", "--resume", "--run", str(folder)]
    noise = ("--noise.kind", "uniform", "--noise.rate", "0.4")
    steps = ("--training.steps", str(STEPS[method]), "--training.checkpoint_every", "5", "--training.device", "cpu")
    return ["train", "digits", "--method", method, *noise, *steps, "--run", str(folder)]


def one_process(method: str, folder: Path, life: float | None, draw: random.Random) -> tuple[Seen, float]:
    """Begin a run or go on with it, end it after so much time of the processor; return what was seen, and the time."""
    begun = folder.with_name("begun")
    begun.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", ONE, str(begun), *training(method, folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    memory = descriptors = 0
    used, told = 0.0, False
    while process.poll() is None:
        memory, descriptors, used = looked_at(process.pid, memory, descriptors, used)
        if life is not None and used > life and begun.exists() and not told:
            process.send_signal(draw.choice(SIGNALS))
            told = True
        time.sleep(0.05)
    assert process.stderr is not None
    said = process.stderr.read()
    if b"Traceback" in said or process.returncode not in ENDINGS | {0}:
        raise SystemExit(f"FAILED: {method} ended with {process.returncode}: {said.decode()[-3000:]}")
    return Seen(method, memory, descriptors, process.returncode), used


def looked_at(pid: int, memory: int, descriptors: int, used: float) -> tuple[int, int, float]:
    """Return the most of memory and descriptors so far, and the processor time; as before where it is gone already."""
    try:
        proc = Path(f"/proc/{pid}")
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        pages = int((proc / "statm").read_text().split()[1])
        return (
            max(memory, PAGE * pages),
            max(descriptors, len(os.listdir(proc / "fd"))),
            (int(fields[11]) + int(fields[12])) / TICK,
        )
    except (OSError, IndexError):
        return memory, descriptors, used


def digest(folder: Path) -> list[bytes]:
    """Return the results of a run."""
    return [(folder / name).read_bytes() for name in RESULTS]


class Soak:
    """What was seen so far."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.draw = place, random.Random(seed)
        self.processes: list[Seen] = []
        self.in_one: list[list[int]] = []  # of the process that lives on: pages, descriptors, threads after each run
        self.finished = self.most_files = self.most_checkpoints = 0
        self.scratch = place / "scratch"
        self.scratch.mkdir()
        os.environ["TMPDIR"] = str(self.scratch)
        self.many = subprocess.Popen(
            [sys.executable, "-c", MANY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.expected, self.seconds = {}, {}
        for method in STEPS:
            folder = place / f"straight-{method}"
            _, self.seconds[method] = one_process(method, folder, None, self.draw)
            self.expected[method] = digest(folder)
            shutil.rmtree(folder)

    def one_run(self, method: str) -> None:
        """Take a run to its end through kills, and then once more in the process that lives on."""
        folder = self.place / "run"
        code = -1
        while code != 0:
            seen, _ = one_process(method, folder, self.draw.uniform(0, 1.1 * self.seconds[method]), self.draw)
            self.processes.append(seen)
            code = seen.code
            names = [path.name for path in folder.iterdir()] if folder.exists() else []
            self.most_files = max(self.most_files, len(names))
            kept = [name for name in names if name.startswith(("checkpoint", "ledger-")) and not name.startswith(".")]
            self.most_checkpoints = max(self.most_checkpoints, len(kept))
        if digest(folder) != self.expected[method]:
            raise SystemExit(f"FAILED: run {self.finished} of {method} differs from the undisturbed one")
        shutil.rmtree(folder)
        self.in_one.append(self._in_the_same_process(method))
        left = [path.name for path in (*self.place.iterdir(), *self.scratch.iterdir())]
        if set(left) - {"scratch", "begun", "torchinductor_root"}:  # the last one is a cache of torch
            raise SystemExit(f"FAILED: files are left over: {left}")
        self.finished += 1

    def _in_the_same_process(self, method: str) -> list[int]:
        folder = self.place / "again"
        assert self.many.stdin is not None
        assert self.many.stdout is not None
        self.many.stdin.write(json.dumps(training(method, folder)) + "\n")
        self.many.stdin.flush()
        seen: list[int] = json.loads(next(line for line in self.many.stdout if line.startswith("SEEN"))[4:])
        if seen[0] != 0 or digest(folder) != self.expected[method]:
            raise SystemExit(f"FAILED: a run of {method} in the process that lives on differs ({seen[0]})")
        shutil.rmtree(folder)
        return seen[1:]

    def summary(self) -> tuple[list[str], list[str]]:
        """Return what was seen, in lines, and what grew."""
        killed = [seen for seen in self.processes if seen.code]
        how: dict[str, int] = {}
        for seen in killed:
            name = signal.Signals(abs(seen.code) % 128).name
            how[name] = how.get(name, 0) + 1
        lines = [
            f"{self.finished} runs finished through {len(killed)} kills ({how}), all equal to the undisturbed ones; "
            f"{len(self.in_one)} more in one process",
            f"files in a run folder, at most {self.most_files}; checkpoints and their ledgers, {self.most_checkpoints}",
        ]
        grew: list[str] = []
        for method in STEPS:
            whole = [seen for seen in self.processes if seen.method == method and seen.code == 0]
            self._halves(f"{method}, memory in MB", [seen.memory / 2**20 for seen in whole], lines, grew)
            self._halves(f"{method}, descriptors", [seen.descriptors for seen in whole], lines, grew)
        settled = self.in_one[len(STEPS) :]  # the first run of each method imports and caches
        for place, name in enumerate(("memory in MB", "descriptors", "threads")):
            scale = PAGE / 2**20 if place == 0 else 1
            self._halves(f"one process, {name}", [scale * row[place] for row in settled], lines, grew)
        if self.most_checkpoints > 4:
            grew.append("checkpoints")
        return lines, grew

    @staticmethod
    def _halves(name: str, values: list[Any], lines: list[str], grew: list[str]) -> None:
        if len(values) < 4:
            return
        half = len(values) // 2
        first, second = statistics.median(values[:half]), statistics.median(values[half:])
        lines.append(
            f"{name}: median {first:.0f}, then {second:.0f}; at most {max(values[:half]):.0f}, {max(values[half:]):.0f}"
        )
        if second > GROWTH * first:
            grew.append(name)


def soak(minutes: float, seed: int) -> int:
    """Go on for so long; print what was seen every ten minutes, and return the exit code."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        watched = Soak(Path(place), seed)
        told, methods = began, list(STEPS)
        try:
            while time.monotonic() < began + 60 * minutes:
                watched.one_run(methods[watched.finished % len(methods)])
                if time.monotonic() > told + 600:
                    told = time.monotonic()
                    print(f"after {(told - began) / 60:.0f} minutes:", *watched.summary()[0], sep="\n  ", flush=True)
        finally:
            watched.many.kill()
    lines, grew = watched.summary()
    print(f"{(time.monotonic() - began) / 60:.0f} minutes:", *lines, sep="\n  ")
    print(f"GREW: {grew}" if grew else "Nothing grew.")
    return 1 if grew else 0


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=15)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    sys.exit(soak(given.minutes, given.seed))
