"""What a training step of each method costs, as a multiple of a supervised step of the same noisy batch.

    python benchmarks/step_cost.py [--rounds 5] [--threads 1] [--models resnet-29 wrn-16-2]

As many trusted as noisy images, without augmentation, interleaved in one process. Counting a forward pass as 1 and a
backward pass as 2, a supervised step is 3; L2R is 3 + trusted gradient 3 + Jacobian-vector product 2 = 8 (2.7x); IEG is
22 (7.3x): two views 2, look-ahead gradient 2, trusted gradient 3, product 2, joint batch 9, backward of the views 4.
"""

import argparse
import statistics

import torch

from karat.algorithm.network import Network
from karat.methods import settings_of
from karat.methods.ieg import ieg
from karat.methods.l2r import l2r
from karat.methods.settings import MethodSettings
from karat.methods.step import Batch, Learner, Step
from karat.methods.supervised import supervised
from karat.models import build_model
from timing import interleaved_seconds, machine, median_ratio

BATCH, CLASSES = 100, 10
STEPS: dict[str, Step] = {"supervised": supervised, "l2r": l2r, "ieg": ieg}
PASSES = {"supervised": 3 / 3, "l2r": 8 / 3, "ieg": 22 / 3}


class Unchanged:
    """No augmentation: it costs the same for any network."""

    def weak(
        self, inputs: torch.Tensor, generator: torch.Generator, mirrored: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the inputs."""
        return inputs

    strong = weak


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["resnet-29", "wrn-16-2"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    noisy, trusted = (torch.randn(BATCH, 3, 32, 32) for _ in range(2))
    labels = torch.randint(CLASSES, (2, BATCH))
    batch = Batch(noisy, labels[0], trusted, labels[1])

    print(machine())
    print(f"batch {BATCH} + {BATCH}, 32x32, float32, medians of {options.rounds} interleaved rounds\n")
    print("| network | method | seconds a step | multiple | passes allow |")
    print("|---|---|---|---|---|")
    for model in options.models:
        variants = {}
        for method in PASSES:
            settings = settings_of(method, MethodSettings())
            step = STEPS[method]
            module = build_model(model, (3, 32, 32), CLASSES).to(memory_format=torch.channels_last)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
            learner = Learner(Network(module), optimizer, Unchanged(), CLASSES)
            variants[method] = lambda step=step, learner=learner, settings=settings: step(
                learner, batch, settings, torch.Generator()
            )
        seconds = interleaved_seconds(variants, options.rounds)
        for method in PASSES:
            print(
                f"| {model} | {method} | {statistics.median(seconds[method]):.2f} "
                f"| {median_ratio(seconds, method, 'supervised'):.1f}x | {PASSES[method]:.1f}x |",
                flush=True,
            )


if __name__ == "__main__":
    main()
