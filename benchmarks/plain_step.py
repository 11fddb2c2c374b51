"""What a step of plain training costs beside a bare torch loop with the same network, optimizer and batch size.

    python benchmarks/plain_step.py [--rounds 15] [--threads 1] [--model fast]

Random images of 32x32, batches of 100, interleaved in one process. The bare loop does what nobody can leave out: it
takes the rows, goes forward and back and steps. `Trainer.train_step` also makes views, keeps ledger, average and
metrics. The views alone are measured, too: plain training has the weak one, method `karat` two weak ones and a strong
one.
"""

import argparse
import statistics

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from karat import make_task, read_config
from karat.data.examples import from_arrays
from karat.models import build_model
from karat.training.optimizers import make_optimizer
from karat.training.trainer import Trainer
from timing import interleaved_seconds, machine, median_ratio

BATCH, CLASSES = 100, 10


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", default="fast")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (2_000, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(2_000) % CLASSES
    classes = tuple(map(str, range(CLASSES)))
    data = from_arrays("random", (images, labels), (images[:10], labels[:10]), classes, flip=True)
    settings = {"method": "supervised", "model": options.model, "training.batch_size": BATCH}
    config = read_config({**settings, "training.steps": 10 * options.rounds})
    trainer = Trainer(config, make_task(data))

    noisy = trainer.task.noisy
    network = build_model(options.model, (3, 32, 32), CLASSES).to(memory_format=torch.channels_last)
    optimizer = make_optimizer(network, trainer.config.optimizer)
    rows, generator = torch.arange(BATCH), torch.Generator().manual_seed(0)

    def bare() -> None:
        optimizer.zero_grad()
        cross_entropy(network(noisy.inputs[rows]), noisy.labels[rows]).backward()
        optimizer.step()

    augmentation, batch = trainer.learner.augmentation, noisy.inputs[rows]
    variants = {
        "bare": bare,
        "a step of the run": trainer.train_step,
        "the weak view": lambda: augmentation.weak(batch, generator),
        "the strong view": lambda: augmentation.strong(batch, generator),
    }
    seconds = interleaved_seconds(variants, options.rounds)
    print(machine())
    print(f"{options.model}, batch {BATCH}, 32x32, float32, medians of {options.rounds} interleaved rounds\n")
    print("| | seconds | multiple of the bare step |")
    print("|---|---|---|")
    for name in variants:
        print(f"| {name} | {statistics.median(seconds[name]):.4f} | {median_ratio(seconds, name, 'bare'):.3f} |")


if __name__ == "__main__":
    main()
