"""Interleaved timing and peak memory: ratios that a noisy machine cannot bend."""

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def interleaved_seconds(
    variants: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Run the variants in turn, `rounds` times after one warm-up, and return the seconds of each by the clock."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name, run in variants.items():
            began = clock()
            run()
            if turn:
                seconds[name].append(clock() - began)
    return seconds


def median_ratio(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """Return the median over the rounds of one variant's time as a multiple of another's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))


def peak_increase(run: Callable[[], object]) -> int:
    """Return by how many bytes the process grew at its peak while this ran (Linux)."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not hide what this takes
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from the present size
    before = _status("VmRSS")
    run()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def machine() -> str:
    """Describe the processor and the threads in use."""
    import torch

    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "unknown processor",
    )
    return f"{model}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s), torch {torch.__version__}"
