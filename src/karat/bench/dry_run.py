"""What a recipe would cost here: two steps of each kind of cell on random data of the real size, then nothing.

The batch is small (2 and 7 examples of each kind), so that any network fits. Processor time grows linearly with it and
is extrapolated to the real batch. So is every allocation: one whose size is found with both batches stays, any other
grows with the batch; what is alive at the same time adds up to the peak of the real batch. The peaks of small batches
themselves say little, because parameters outweigh them. Foretold for 40 examples on wrn-28-2: 1% (ieg) and 4% (l2r)
more than measured. Passes over the whole set once an epoch, which some methods make, are not counted.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler import profile

try:
    import resource
except ImportError:  # not a Unix: there the memory before the first step is not counted
    resource = None  # type: ignore[assignment]

from karat.bench.random_data import Size, random_task, size_of
from karat.bench.recipe import Cell, Recipe
from karat.errors import UserError
from karat.settings.config import Config, NoiseSettings, OptimizerSettings
from karat.training.plan import plan
from karat.training.trainer import Trainer

# Shapes are full of factors 2, 3 and 5, and with a factor 7 no size of one batch is found with the other by accident.
BATCHES = (2, 7)
_MEMORY = "[memory]"  # the profiler's name for an allocation or a release
_WEIGHTS = ("relabelled_weight", "mixed_trusted_weight", "mixed_noisy_weight", "consistency_weight")


class Measured(NamedTuple):
    """What one small batch took: time of a step, memory before the first one, then bytes taken (+) and freed (−)."""

    seconds: float
    bytes_before: int
    allocations: list[int]
    parameters: int


@dataclass(frozen=True)
class Cost:
    """What one kind of cell would take on this machine, one thread."""

    cells: tuple[str, ...]
    method: str
    model: str
    size: Size
    batch: int
    steps: int
    parameters: int
    measured_seconds: float
    seconds_a_step: float
    gigabytes: float

    @property
    def days(self) -> float:
        """Return the time of the whole run."""
        return self.seconds_a_step * self.steps / 86_400


def dry_run(recipe: Recipe, report: Callable[[Cost], None]) -> list[Cost]:
    """Measure each kind of cell (method, network, data, batch) once; report each."""
    for name, level in {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}.items():
        os.environ.setdefault(name, level)  # the profilers of the new processes keep their notes to themselves
    costs = []
    for cells in _kinds(recipe.cells):
        costs.append(_cost(cells))
        report(costs[-1])
    return costs


def measure(config: Config, count: int) -> Measured:
    """Take the steps of one kind of cell with `count` examples of each kind."""
    torch.set_num_threads(1)
    trainer = _trainer(config, size_of(config), count)
    before = _peak_bytes()
    times, allocations = [], []
    while not trainer.finished:
        with profile(use_cpu=True, profile_memory=True) as profiler:
            step_began = time.process_time()  # of this process alone: others on the same cores do not count
            trainer.train_step()
            times.append(time.process_time() - step_began)
        allocations += _allocations(profiler)
    parameters = sum(p.numel() for p in trainer.learner.network.module.parameters())
    return Measured(max(times[1:]), before, allocations, parameters)  # the first step also warms up


def peak_bytes(few: list[int], many: list[int], growth: float) -> float:
    """Return the peak of the allocations `many` if those that grow with the batch were `growth` times as large.

    >>> peak_bytes(few=[10, 2, -2, -10], many=[10, 7, -7, -10], growth=100 / 7)
    110.0
    """
    constant = {abs(size) for size in few}
    alive = peak = 0.0
    for size in many:
        alive += size if abs(size) in constant else size * growth
        peak = max(peak, alive)
    return peak


def _cost(cells: tuple[Cell, ...]) -> Cost:
    """Measure one kind of cell with two small batches, and extrapolate to its real one."""
    config = cells[0].config
    size = size_of(config)
    noisy = max(size.examples - size.classes * config.data.trusted_per_class, 2)
    training = config.training
    settled = plan(
        size.shape, noisy, size.classes, model=config.model,
        epochs=training.epochs, steps=training.steps, batch_size=training.batch_size,
    )  # fmt: skip
    batch = settled.batch_size
    began = time.monotonic()
    measured: list[Measured] = []
    for count in BATCHES:
        # A new process each: the peak memory of a process, which is what it had before the first step, never falls.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            try:
                measured.append(pool.submit(measure, config, count).result())
            except BrokenProcessPool:
                raise UserError(
                    f"A process died while {cells[0].name} was measured, perhaps for lack of memory: "
                    "choose other cells with --only."
                ) from None
    few, many = measured
    return Cost(
        tuple(cell.name for cell in cells),
        config.method,
        config.model,
        size,
        batch,
        settled.steps,
        many.parameters,
        time.monotonic() - began,
        _extrapolated([few.seconds, many.seconds], batch),
        (few.bytes_before + peak_bytes(few.allocations, many.allocations, max(batch / BATCHES[1], 1.0))) / 2**30,
    )


def _trainer(config: Config, size: Size, batch: int) -> Trainer:
    """Return a run of two steps in each phase; the second of two is past the warm-up that some methods have."""
    steps = 2
    while True:
        training = replace(
            config.training, steps=steps, batch_size=batch, trusted_batch_size=batch, device="cpu", threads=1
        )
        trainer = Trainer(replace(config, training=training), random_task(size, batch))
        if steps >= 2 * len(trainer.phases):
            return trainer
        steps = 2 * len(trainer.phases)


def _kinds(cells: Iterable[Cell]) -> list[tuple[Cell, ...]]:
    """Group the cells that cost the same: they differ in seed, noise, trusted examples, rates and weights of losses."""
    kinds: dict[Config, list[Cell]] = {}
    for cell in cells:
        config = cell.config
        weights: dict[str, Any] = {
            name: float(getattr(config.methods.ieg, name) > 0) for name in _WEIGHTS
        }  # 0 spares work
        kind = replace(
            config,
            seed=0,
            data=replace(config.data, trusted_per_class=10),
            noise=NoiseSettings(),
            methods=replace(config.methods, ieg=replace(config.methods.ieg, **weights)),
            optimizer=OptimizerSettings(config.optimizer.name),
        )
        kinds.setdefault(kind, []).append(cell)
    return [tuple(group) for group in kinds.values()]


def _peak_bytes() -> int:
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10


def _allocations(profiler: profile) -> list[int]:
    """Return the bytes of every allocation (+) and release (−), in order."""
    results: Any = profiler.kineto_results  # torch's stubs leave out nbytes
    found = [(event.start_ns(), event.nbytes()) for event in results.events() if event.name() == _MEMORY]
    return [size for _, size in sorted(found, key=lambda pair: pair[0])]


def _extrapolated(values: list[float], batch: int) -> float:
    (low, high), (few, many) = values, BATCHES
    if batch <= many:
        return high
    line = high + max(high - low, 0.0) / (many - few) * (batch - many)
    return min(line, high * batch / many)  # steeper than in proportion is a measuring error


def check_sizes(recipe: Recipe) -> None:
    """Refuse a recipe whose data have no known size and cannot be loaded, before anything is measured."""
    for cells in _kinds(recipe.cells):
        try:
            size_of(cells[0].config)
        except UserError as error:
            raise UserError(f"{cells[0].name}: {error}") from error
