"""What a whole run of a method costs beside plain training: processor time, time on the clock, accuracy.

    python benchmarks/run_cost.py [--methods supervised karat ieg] [--seeds 0 1 2] [-- OPTIONS OF karat train]

Fresh processes of `karat train digits --training.epochs 15 --noise.kind uniform --noise.rate 0.4` with one thread, in
turns; options after `--` come last and win. The clock counts what `karat train` does before and after the steps, too:
imports, the label model of `karat`, the audit and the report.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DIGITS = ["digits", "--training.epochs", "15", "--noise.kind", "uniform", "--noise.rate", "0.4"]


def measured(method: str, seed: int, options: list[str], folder: Path) -> tuple[float, float, float]:
    """Return processor seconds, seconds on the clock and test accuracy of a run in a process of its own."""
    command = [sys.executable, "-m", "karat", "train", *DIGITS, "--method", method, "--seed", str(seed)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [*command, "--training.threads", "1", "--run", str(folder), *options],
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    accuracy = json.loads((folder / "results.json").read_text())["averaged"]["top1"]
    return spent, time.monotonic() - began, 100 * accuracy


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=["supervised", "karat", "ieg"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("options", nargs="*")
    chosen = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = {method: [] for method in chosen.methods}
    with tempfile.TemporaryDirectory() as folder:
        for seed in chosen.seeds:
            for method in chosen.methods:
                run = measured(method, seed, chosen.options, Path(folder) / f"{method}-{seed}")
                found[method].append(run)
                print(f"{method} {seed}: {run[0]:.1f} s, {run[1]:.1f} s, {run[2]:.2f}%", file=sys.stderr, flush=True)
    base = found[chosen.methods[0]]
    print("| method | processor time | of the first | clock | of the first | accuracy |")
    print("|---|---|---|---|---|---|")
    for method, runs in found.items():
        spent, clock, accuracy = (statistics.median(run[place] for run in runs) for place in range(3))
        ratios = [statistics.median(a[p] / b[p] for a, b in zip(runs, base, strict=True)) for p in (0, 1)]
        print(f"| {method} | {spent:.0f} s | {ratios[0]:.1f}x | {clock:.0f} s | {ratios[1]:.1f}x | {accuracy:.1f} |")


if __name__ == "__main__":
    main()
