"""What a recipe would cost here: two steps of each kind of cell on random data of the real size, then nothing.

The batch is small (2 and 8 examples of each kind), so that any network fits. Processor time grows linearly with it and
is extrapolated to the real batch. Passes over the whole set once an epoch, which some methods make, are not counted.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from karat.bench.random_data import Size, random_task, size_of
from karat.bench.recipe import Cell, Recipe
from karat.errors import UserError
from karat.settings.config import Config, NoiseSettings, OptimizerSettings
from karat.training.fit import Listener, fit
from karat.training.plan import plan
from karat.training.trainer import Trainer

BATCHES = (2, 8)
_WEIGHTS = ("relabelled_weight", "mixed_trusted_weight", "mixed_noisy_weight", "consistency_weight")
Clock = Callable[[], float]


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

    @property
    def days(self) -> float:
        """Return the time of the whole run."""
        return self.seconds_a_step * self.steps / 86_400


class StepTimes(Listener):
    """Note how long each step took."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._last, self.seconds = clock, clock(), list[float]()

    def step_taken(self) -> None:
        """Note the time since the step before."""
        now = self._clock()
        self.seconds.append(now - self._last)
        self._last = now


class Measured(NamedTuple):
    """What one small batch took: the time of a step; and the size of the network."""

    seconds: float
    parameters: int


def dry_run(recipe: Recipe, report: Callable[[Cost], None]) -> list[Cost]:
    """Measure each kind of cell (method, network, data, batch) once, with one thread; report each."""
    costs = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for cells in _kinds(recipe.cells):
            costs.append(_cost(cells))
            report(costs[-1])
    finally:
        torch.set_num_threads(threads)
    return costs


def measure(config: Config, count: int, clock: Clock = time.process_time) -> Measured:
    """Take the steps of one kind of cell with `count` examples of each kind.

    The clock is that of this process alone: others on the same cores do not count.
    """
    trainer = _trainer(config, size_of(config), count)
    times = StepTimes(clock)
    fit(trainer, times, evaluate=False)
    parameters = sum(p.numel() for p in trainer.learner.network.module.parameters())
    return Measured(max(times.seconds[1:]), parameters)  # the first step also warms up


def _cost(cells: tuple[Cell, ...]) -> Cost:
    """Measure one kind of cell with two small batches, and extrapolate to its real one."""
    config = cells[0].config
    size = size_of(config)
    noisy = max(size.examples - size.classes * config.data.drawn_per_class(curated=True), 2)
    training = config.training
    settled = plan(
        size.shape, noisy, size.classes, model=config.model,
        epochs=training.epochs, steps=training.steps, batch_size=training.batch_size,
    )  # fmt: skip
    began = time.monotonic()
    few, many = (measure(config, count) for count in BATCHES)
    return Cost(
        tuple(cell.name for cell in cells),
        config.method,
        config.model,
        size,
        settled.batch_size,
        settled.steps,
        many.parameters,
        time.monotonic() - began,
        _extrapolated([few.seconds, many.seconds], settled.batch_size),
    )


def _trainer(config: Config, size: Size, batch: int) -> Trainer:
    """Return a run of two steps in each phase; the second of two is past the warm-up that some methods have."""
    steps = 2
    while True:
        training = replace(config.training, steps=steps, batch_size=batch, trusted_batch_size=batch, device="cpu")
        trainer = Trainer(replace(config, training=training), random_task(size, batch))
        if steps >= 2 * len(trainer.course.phases):
            return trainer
        steps = 2 * len(trainer.course.phases)


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
            data=replace(config.data, trusted_per_class=None),
            noise=NoiseSettings(),
            methods=replace(config.methods, ieg=replace(config.methods.ieg, **weights)),
            optimizer=OptimizerSettings(config.optimizer.name),
        )
        kinds.setdefault(kind, []).append(cell)
    return [tuple(group) for group in kinds.values()]


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
