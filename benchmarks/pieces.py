"""What passes that are computed again save and cost: peak memory and time of a step by `training.pieces`.

    python benchmarks/pieces.py [--rounds 3] [--model wrn-16-2] [--method ieg]

As many trusted as noisy images of 32x32 pixels, without augmentation, one thread, interleaved in one process.
"""

import argparse
import time

import torch

from step_cost import BATCH, VARIANTS, step_of
from timing import interleaved_seconds, machine, median_ratio, peak_increase


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="wrn-16-2")
    parser.add_argument("--method", default="ieg", choices=VARIANTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = {"supervised": step_of(options.model, VARIANTS["supervised"])}
    steps |= {str(pieces): step_of(options.model, VARIANTS[options.method], pieces) for pieces in (None, 1, 4)}
    peaks = {name: peak_increase(step) for name, step in steps.items()}
    seconds = interleaved_seconds(steps, options.rounds, time.process_time)
    print(
        f"{machine()}; {options.model}, {options.method}, batch {BATCH} + {BATCH}, {options.rounds} rounds, medians\n"
    )
    print("| pieces | memory, MB | of a supervised step | time of a supervised step |")
    print("|---|---|---|---|")
    for name in steps:
        share, ratio = peaks[name] / peaks["supervised"], median_ratio(seconds, name, "supervised")
        print(f"| {name} | {peaks[name] / 2**20:.0f} | {share:.2f}x | {ratio:.2f}x |")


if __name__ == "__main__":
    main()
