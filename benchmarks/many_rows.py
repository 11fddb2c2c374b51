"""What the label model loses where heads learn from some of the rows, and walks go over fewer: Fashion-MNIST.

    python benchmarks/many_rows.py [--noise uniform asymmetric] [--seeds 0 1] [--learned 10000 20000 50000]
        [--inside 20000 60000] [--images]

The pixels of 60,000 images are vectors of 784 numbers (or stay images, as `karat train` has them); there is noise of
rate 0.4 on the labels, and ten of each class are trusted. `--learned` are the rows that heads learn from, `--inside`
those over which walks go. Printed for each pair: how often the likeliest class of the posterior is the true one, of all
rows and of those that no head learned from, the AUROC of finding wrong labels, seconds of a processor, and MiB beyond
what the process had before (of the first pair: what it gave back it takes again).
"""

import argparse
import time
from dataclasses import replace
from itertools import product

import torch
from sklearn.metrics import roc_auc_score

from frozen_cost import Memory
from karat import Config, make_task
from karat.data.datasets import load_dataset
from karat.data.examples import Dataset, Examples
from karat.data.settings import DataSettings, NoiseSettings
from karat.data.task import NoisyTask
from karat.methods.karat.folds import deal
from karat.methods.karat.method import Karat
from karat.training.trainer import Trainer


def as_vectors(dataset: Dataset) -> Dataset:
    """Return a dataset of images with their pixels as the features of a table."""
    train, test = (Examples(part.inputs[:].flatten(1), part.labels) for part in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test, schema=None)


def judged(task: NoisyTask, learned: int, inside: int) -> str:
    """Judge the labels; return what was found, as a line of a table."""
    method = Trainer(replace(Config(), model="linear" if task.noisy.inputs.ndim == 2 else "fast-2"), task).method
    assert isinstance(method, Karat)
    constants = method.constants
    method.constants = constants = replace(
        constants,
        neighbours=replace(constants.neighbours, most_inside=inside),
        verdict=replace(constants.verdict, most_learned=learned, most_numbers=10**10),
    )
    began = time.process_time()
    with Memory() as memory:
        method.look(torch.Generator().manual_seed(0))
    seconds = time.process_time() - began
    posterior, truth, given = method.verdict.posterior, task.labels.true, task.noisy.labels
    assert truth is not None
    right = posterior.argmax(dim=1) == truth
    others = deal(method.labels, method._generator(), constants.verdict).others
    quality = posterior.gather(1, given[:, None]).squeeze(1)
    of_others = f"{100 * right[others].double().mean():.2f}" if len(others) else "–"
    return (
        f"{learned:,} | {inside:,} | {100 * right.double().mean():.2f} | {of_others} | "
        f"{100 * roc_auc_score(given != truth, -quality):.2f} | {seconds:.0f} | {memory.most / 2**20:.0f}"
    )


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", nargs="+", default=["uniform", "asymmetric"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--learned", nargs="+", type=int, default=[10_000, 20_000, 50_000])
    parser.add_argument("--inside", nargs="+", type=int, default=[20_000])
    parser.add_argument("--images", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_dataset("fashion_mnist")
    dataset = dataset if options.images else as_vectors(dataset)
    for noise, seed in product(options.noise, options.seeds):
        task = make_task(dataset, DataSettings(trusted_per_class=10), NoiseSettings(noise, 0.4), seed)
        for learned, inside in product(options.learned, options.inside):
            print(noise, seed, judged(task, learned, inside), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
