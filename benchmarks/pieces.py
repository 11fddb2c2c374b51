"""What passes that are computed again save and cost: peak memory and time of a step by `training.pieces`.

    python benchmarks/pieces.py [--rounds 3] [--model wrn-16-2] [--method ieg]

As many trusted as noisy images of 32x32 pixels, without augmentation, one thread, interleaved in one process.
"""

import argparse

import torch

from karat.algorithm.network import Network
from karat.methods import settings_of
from karat.methods.settings import MethodSettings
from karat.methods.step import Batch, Learner
from karat.models import build_model
from step_cost import BATCH, CLASSES, STEPS, Unchanged
from timing import interleaved_seconds, machine, median_ratio, peak_increase


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="wrn-16-2")
    parser.add_argument("--method", default="ieg", choices=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    noisy, trusted = (torch.randn(BATCH, 3, 32, 32) for _ in range(2))
    labels = torch.randint(CLASSES, (2, BATCH))
    settings = settings_of(options.method, MethodSettings())
    variants = {}
    for pieces in (None, 1, 4):
        module = build_model(options.model, (3, 32, 32), CLASSES).to(memory_format=torch.channels_last).train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
        learner = Learner(Network(module, pieces=pieces), optimizer, Unchanged(), CLASSES)
        variants[str(pieces)] = lambda learner=learner: STEPS[options.method](
            learner, Batch(noisy, labels[0], trusted, labels[1]), settings, torch.Generator()
        )
    seconds = interleaved_seconds(variants, options.rounds)
    peaks = {name: peak_increase(step) for name, step in variants.items()}
    print(
        f"{machine()}; {options.model}, {options.method}, batch {BATCH} + {BATCH}, {options.rounds} rounds, medians\n"
    )
    print("| pieces | memory, MB | memory | time |")
    print("|---|---|---|---|")
    for name in variants:
        share, ratio = peaks[name] / peaks["None"], median_ratio(seconds, name, "None")
        print(f"| {name} | {peaks[name] / 2**20:.0f} | {share:.2f}x | {ratio:.2f}x |")


if __name__ == "__main__":
    main()
