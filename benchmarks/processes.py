"""What it costs that two processes share a step, in processor time and in messages.

    python benchmarks/processes.py [--rounds 5] [--models fast-16 wrn-16-2] [--methods supervised l2r ieg]

In every round the first process takes a step alone, while the other waits, and then both take the same step together,
each with one thread. As many trusted as noisy images, the views of a run. Processor time is that of both processes, all
threads and the kernel included: it does not depend on what else the machine does, as time on the wall does.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

import karat.algorithm.ranks as ranks_module
from karat.algorithm.network import Network
from karat.algorithm.ranks import Ranks
from karat.data.modality import IMAGES
from karat.data.settings import AugmentationSettings
from karat.methods import settings_of
from karat.methods.ieg import ieg
from karat.methods.l2r import l2r
from karat.methods.settings import MethodSettings
from karat.methods.step import Batch, Learner, Step
from karat.methods.supervised import supervised
from karat.models import build_model
from timing import machine

CLASSES = 10
STEPS: dict[str, Step] = {"supervised": supervised, "l2r": l2r, "ieg": ieg}


class Counted:
    """Count and time the messages between processes, and time the views, which every process makes."""

    def __init__(self) -> None:
        self.messages, self.bytes, self.message_seconds, self.view_seconds = 0, 0, 0.0, 0.0
        self._send = ranks_module._heard
        ranks_module._heard = self._heard

    def _heard(self, operation: Any, *args: Any, **kwargs: Any) -> None:
        began = time.process_time()
        self._send(operation, *args, **kwargs)
        self.message_seconds += time.process_time() - began
        self.messages += 1
        self.bytes += sum(one.numel() * one.element_size() for one in args if isinstance(one, Tensor))


class Timed:
    """An augmentation with a clock."""

    def __init__(self, augmentation: Any, counted: Counted) -> None:
        self._augmentation, self._counted = augmentation, counted

    def _view(self, make: Any, *args: Any) -> Tensor:
        began = time.process_time()
        view = make(*args)
        self._counted.view_seconds += time.process_time() - began
        return view

    def weak(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Return the weak view."""
        return self._view(self._augmentation.weak, inputs, generator, mirrored)

    def strong(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Return the strong view."""
        return self._view(self._augmentation.strong, inputs, generator)

    def close_up(self, inputs: Tensor, generator: torch.Generator, mirrored: Tensor | None = None) -> Tensor:
        """Return the close-up."""
        return self._view(self._augmentation.close_up, inputs, generator, mirrored)


def stepper(method: str, model: str, batch: int, ranks: Ranks | None, counted: Counted) -> Any:
    """Return what takes one step of a method."""
    torch.manual_seed(0)
    noisy, trusted = (torch.rand(batch, 3, 32, 32) for _ in range(2))
    labels = torch.randint(CLASSES, (2, batch))
    module = build_model(model, (3, 32, 32), CLASSES).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    augmentation = Timed(IMAGES.augment((3, 32, 32), True, AugmentationSettings()), counted)
    learner = Learner(Network(module, ranks=ranks), optimizer, augmentation, CLASSES)
    settings = settings_of(method, MethodSettings())
    step = STEPS[method]
    generator = torch.Generator().manual_seed(0)
    return lambda: step(learner, Batch(noisy, labels[0], trusted, labels[1]), settings, generator)


def measured(step: Callable[[], object]) -> tuple[float, float]:
    """Return the processor time and the time on the wall of a step."""
    processor, wall = time.process_time(), time.perf_counter()
    step()
    return time.process_time() - processor, time.perf_counter() - wall


def work(rank: int, options: argparse.Namespace) -> None:
    """Measure in one of the two processes; the first one prints."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{options.port}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    counted = Counted()
    if rank == 0:
        print(f"{machine()}; {options.rounds} interleaved rounds, medians; batch {options.batch} + {options.batch}\n")
        print(
            "| network | method | processor time, two / one | time on the wall, two / one | messages | MB | their "
            "share | share of the views |"
        )
        print("|---|---|---|---|---|---|---|---|")
    for model in options.models:
        for method in options.methods:
            alone = stepper(method, model, options.batch, None, counted)
            shared = stepper(method, model, options.batch, Ranks(), counted)
            found = []
            for _ in range(options.rounds + 1):
                dist.barrier()
                by_one = measured(alone) if rank == 0 else (0.0, 0.0)
                dist.barrier()
                before = dict(vars(counted))
                own = measured(shared)
                processor = torch.tensor(own[0])
                dist.all_reduce(processor)
                spent = {name: value - before[name] for name, value in vars(counted).items() if name[0] != "_"}
                if rank == 0:
                    found.append(
                        (
                            processor.item() / by_one[0],
                            own[1] / by_one[1],
                            spent["message_seconds"] / own[0],
                            spent["view_seconds"] / own[0],
                        )
                    )
            if rank == 0:
                ratio, wall, messages, views = (statistics.median(column) for column in zip(*found[1:], strict=True))
                print(
                    f"| {model} | {method} | {ratio:.2f} | {wall:.2f} | {spent['messages']} "
                    f"| {spent['bytes'] / 1e6:.2f} | {messages:.0%} | {views:.0%} |",
                    flush=True,
                )
    dist.destroy_process_group()


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--models", nargs="+", default=["fast-16", "wrn-16-2"])
    parser.add_argument("--methods", nargs="+", default=["supervised", "l2r", "ieg"])
    parser.add_argument("--port", type=int, default=29_517)
    spawn(work, (parser.parse_args(),), nprocs=2)


if __name__ == "__main__":
    main()
