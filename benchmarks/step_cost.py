"""What a training step of each method costs, as a multiple of a supervised step of the same noisy batch.

    python benchmarks/step_cost.py [--rounds 5] [--threads 1] [--models resnet-29 wrn-16-2]
    python benchmarks/step_cost.py --memory [--rounds 3]

As many trusted as noisy images, without augmentation, processor time, interleaved in one process. Counting a forward
pass as 1 and a backward pass as 2, a supervised step is 3; L2R is 3 + trusted gradient 3 + Jacobian-vector product 2 =
8 (2.7x); IEG is 22 (7.3x): two views 2, look-ahead gradient 2, trusted gradient 3, product 2, joint batch 9, backward
of the views 4. With the last layer alone (`meta_layers` 1) only the trusted forward pass is left of the meta step: L2R
4 (1.3x), IEG 16 (5.3x). Memory is the growth of a fresh process at the peak of its first step, in turns.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from karat.algorithm.network import Network
from karat.files.memory_need import keeping_freed_memory
from karat.methods import settings_of
from karat.methods.ieg import ieg
from karat.methods.l2r import l2r
from karat.methods.settings import MethodSettings
from karat.methods.step import Batch, Learner, Step
from karat.methods.supervised import supervised
from karat.models import build_model
from timing import interleaved_seconds, machine, median_ratio, peak_increase

BATCH, CLASSES = 100, 10


class Variant(NamedTuple):
    """A method with changed settings, and the passes that it cannot do without."""

    method: str
    step: Step
    passes: int
    changes: Mapping[str, Any] = MappingProxyType({})


VARIANTS = {
    "supervised": Variant("supervised", supervised, 3),
    "l2r": Variant("l2r", l2r, 8),
    "l2r, last layer": Variant("l2r", l2r, 4, {"meta_layers": 1}),
    "ieg": Variant("ieg", ieg, 22),
    "ieg, last layer": Variant("ieg", ieg, 16, {"meta_layers": 1}),
}


class Unchanged:
    """No augmentation: it costs the same for any network."""

    def weak(
        self, inputs: torch.Tensor, generator: torch.Generator, mirrored: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the inputs."""
        return inputs

    strong = weak
    close_up = weak


def step_of(model: str, variant: Variant, pieces: int | None = None) -> Callable[[], object]:
    """Return what takes a step, always of the same batch, with `training.pieces`."""
    torch.manual_seed(0)
    noisy, trusted = (torch.randn(BATCH, 3, 32, 32) for _ in range(2))
    labels = torch.randint(CLASSES, (2, BATCH))
    batch = Batch(noisy, labels[0], trusted, labels[1])
    settings = settings_of(variant.method, MethodSettings())
    settings = replace(settings, **variant.changes) if variant.changes else settings
    module = build_model(model, (3, 32, 32), CLASSES).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    learner = Learner(Network(module, pieces=pieces), optimizer, Unchanged(), CLASSES)
    return lambda: variant.step(learner, batch, settings, torch.Generator())


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["resnet-29", "wrn-16-2"])
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--memory-of", nargs=2, metavar=("MODEL", "VARIANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        model, name = options.memory_of
        print(peak_increase(step_of(model, VARIANTS[name])))
        return
    print(machine())
    print(f"batch {BATCH} + {BATCH}, 32x32, float32, medians of {options.rounds} interleaved rounds\n")
    print_memory(options) if options.memory else print_time(options)


def print_time(options: argparse.Namespace) -> None:
    """Print a row for each network and variant."""
    print("| network | method | seconds a step | multiple | passes allow |")
    print("|---|---|---|---|---|")
    for model in options.models:
        steps = {name: step_of(model, variant) for name, variant in VARIANTS.items()}
        seconds = interleaved_seconds(steps, options.rounds, time.process_time)
        for name, variant in VARIANTS.items():
            print(
                f"| {model} | {name} | {statistics.median(seconds[name]):.2f} "
                f"| {median_ratio(seconds, name, 'supervised'):.2f}x | {variant.passes / 3:.2f}x |",
                flush=True,
            )


def print_memory(options: argparse.Namespace) -> None:
    """Print a row for each network and variant."""
    print("| network | method | MiB | multiple |")
    print("|---|---|---|---|")
    for model in options.models:
        found: dict[str, list[int]] = {name: [] for name in VARIANTS}
        for _ in range(options.rounds):
            for name in VARIANTS:
                command = [sys.executable, __file__, "--threads", str(options.threads), "--memory-of", model, name]
                found[name].append(int(subprocess.run(command, check=True, capture_output=True).stdout))
        base = statistics.median(found["supervised"])
        for name, bytes_taken in found.items():
            taken = statistics.median(bytes_taken)
            print(f"| {model} | {name} | {taken / 2**20:.0f} | {taken / base:.2f}x |", flush=True)


if __name__ == "__main__":
    with keeping_freed_memory():
        main()
