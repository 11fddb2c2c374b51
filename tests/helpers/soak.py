"""Train on digits again and again, killed at random moments, and look for what grows.

    python tests/helpers/soak.py --minutes 15

Every round is a fresh process on one run folder: started, ended by SIGKILL, SIGTERM or SIGINT after a random time, gone
on with, until the run is finished; then a new folder. In the end: how many files a run folder had at most, the peak
memory of the processes in both halves of the time, the descriptors that were open at their end, and whether all models
are equal.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPTIONS = (
    *("digits", "--method", "supervised", "--noise.kind", "uniform", "--noise.rate", "0.4"),
    *("--training.steps", "400", "--training.checkpoint_every", "10", "--training.device", "cpu"),
)
WATCHED = """
import json, os, resource, sys
from karat.cli import main
code = main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump([len(os.listdir("/proc/self/fd")), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss], file)
sys.exit(code)
"""


def one_round(folder: Path, notes: Path, seconds: float, draw: random.Random) -> int:
    """Start or go on with a run and end it after some seconds; return its exit code."""
    begun = (folder / "config.yaml").exists()
    command = ["train", "--resume", "--run", folder] if begun else ["train", *OPTIONS, "--run", folder]
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, str(notes), *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        said = process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        process.send_signal(draw.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        said = process.communicate()[1]
    if b"Traceback" in said:
        raise SystemExit(said.decode())
    return process.returncode


def soak(minutes: float, seed: int) -> int:
    """Go on for so long; print what was seen, and return the exit code."""
    draw, until = random.Random(seed), time.monotonic() + 60 * minutes
    rounds = finished = 0
    digests, most_files, memory, descriptors = set(), [], [], []
    with tempfile.TemporaryDirectory() as place:
        notes = Path(place) / "notes.json"
        while time.monotonic() < until:
            folder = Path(place) / f"run-{finished}"
            code = one_round(folder, notes, draw.uniform(4, 25), draw)
            rounds += 1
            if folder.exists():
                files = [path for path in folder.rglob("*") if path.is_file()]
                most_files.append(len([path for path in files if "report" not in str(path.relative_to(folder))]))
            if notes.exists():
                count, peak = json.loads(notes.read_text())
                descriptors.append(count)
                memory.append(peak / 2**10)
                notes.unlink()
            if code == 0:
                digests.add((folder / "model.safetensors").read_bytes())
                finished += 1
                shutil.rmtree(folder)
            elif code not in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130, 143):
                print(f"FAILED: exit code {code}")
                return 1
    half = len(memory) // 2
    print(f"{minutes:g} minutes, {rounds} processes, {rounds - finished} ended by a signal, {finished} runs finished")
    print(f"different models: {len(digests)}; files in a run folder, at most: {max(most_files)}")
    print(f"descriptors at the end: {min(descriptors)} to {max(descriptors)}")
    print(f"peak memory: first half up to {max(memory[:half]):.0f} MB, second half up to {max(memory[half:]):.0f} MB")
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=15)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    sys.exit(soak(given.minutes, given.seed))
