"""A step in float32, in bfloat16 and compiled: processor time of one thread, and what compiling takes.

    python benchmarks/passes.py [--networks fast-16 wrn-16-2] [--methods supervised ieg] [--rounds 5]

100 noisy and 100 trusted images of 32x32 pixels; medians of interleaved rounds, after one that warms up. Times as
multiples of float32. What a GPU would gain is not seen here.
"""

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from karat import Config, make_task
from karat.data.examples import Dataset, Examples
from karat.data.settings import DataSettings, NoiseSettings
from karat.settings.config import TrainingSettings
from karat.training.trainer import Trainer

WAYS: dict[str, dict[str, Any]] = {"float32": {}, "bfloat16": {"precision": "bfloat16"}, "compiled": {"compile": True}}


def drawn(rows: int = 400, classes: int = 10) -> Dataset:
    """Return images of clouds, which no network learns: steps take as long with them."""
    torch.manual_seed(0)
    train, test = (Examples(torch.rand(n, 3, 32, 32), torch.arange(n) % classes) for n in (rows, 0))
    return Dataset("clouds", train, test, tuple(map(str, range(classes))), flip=True, rows=torch.arange(rows))


def main() -> None:
    """Print a line for each network and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["fast-16", "wrn-16-2"])
    parser.add_argument("--methods", nargs="+", default=["supervised", "ieg"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = make_task(drawn(), DataSettings(trusted_per_class=10), NoiseSettings("uniform", 0.4))
    for network in options.networks:
        for method in options.methods:
            training = TrainingSettings(steps=100, batch_size=100, trusted_batch_size=100, device="cpu")
            config = replace(Config(), method=method, model=network)
            ways = {
                name: Trainer(replace(config, training=replace(training, **changes)), task)
                for name, changes in WAYS.items()
            }
            first = {name: _seconds(trainer) for name, trainer in ways.items()}
            rounds = [{name: _seconds(trainer) for name, trainer in ways.items()} for _ in range(options.rounds)]
            medians = {name: statistics.median(one[name] for one in rounds) for name in ways}
            compiled = ways["compiled"].learner.network.compiled
            shares = ", ".join(f"{name} {value / medians['float32']:.2f}x" for name, value in medians.items())
            note = "; not compiled" if compiled is None or compiled.failed else ""
            print(
                f"{network} {method}: float32 {medians['float32']:.3f} s a step; {shares}; the first compiled step "
                f"{first['compiled']:.0f} s{note}",
                flush=True,
            )


def _seconds(trainer: Trainer) -> float:
    began = time.process_time()
    trainer.train_step()
    return time.process_time() - began


if __name__ == "__main__":
    main()
