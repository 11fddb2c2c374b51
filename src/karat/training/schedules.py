"""Learning rate schedules: a schedule is a plain function from the step, counted from 0, to the rate."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from karat.errors import UserError, choose

Schedule = Callable[[int], float]


def constant(rate: float) -> Schedule:
    """Keep one rate.

    >>> constant(0.1)(7)
    0.1
    """
    _check_rate(rate)
    return lambda step: rate


def cosine(rate: float, total_steps: int, warmup_steps: int = 0) -> Schedule:
    """Fall from the rate to almost 0 along half a cosine, after an optional linear warm-up.

    With w warm-up steps of T, step t has rate·(t+1)/(w+1) for t < w, then ½·rate·(1 + cos(π·(t−w)/(T−w))),
    and 0 from step T on.

    >>> [round(cosine(1.0, 4)(step), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> [round(cosine(1.0, 7, warmup_steps=3)(step), 3) for step in range(7)]
    [0.25, 0.5, 0.75, 1.0, 0.854, 0.5, 0.146]
    """
    _check_rate(rate)
    if not 0 <= warmup_steps < total_steps:
        raise UserError(
            f"A cosine schedule of {total_steps} steps cannot warm up for {warmup_steps}; "
            "the warm-up must be 0 or more and shorter than the training."
        )

    def schedule(step: int) -> float:
        if step < warmup_steps:
            return rate * (step + 1) / (warmup_steps + 1)
        return _half_cosine(rate, step - warmup_steps, total_steps - warmup_steps)

    return schedule


def cosine_restarts(
    rate: float, first_cycle_steps: int, length_factor: float = 1.5, rate_factor: float = 0.9
) -> Schedule:
    """Repeat the cosine in ever longer cycles, each starting from a lower rate (the paper's schedule).

    Cycle n starts at rate·rate_factorⁿ and has round(first_cycle_steps·length_factorⁿ) steps. With whole
    lengths every cycle ends exactly one step before its zero; real-numbered ends would fall anywhere between
    two steps, and that accident, not the cycle's length, would decide its last rate.

    >>> [round(cosine_restarts(1.0, 2)(step), 3) for step in range(6)]
    [1.0, 0.5, 0.9, 0.675, 0.225, 0.81]
    """
    _check_rate(rate)
    if first_cycle_steps < 1 or not 1 <= length_factor < math.inf or not 0 < rate_factor <= 1:
        raise UserError(
            f"Cosine restarts need a first cycle of at least 1 step (got {first_cycle_steps}), "
            f"a length factor of at least 1 (got {length_factor}) and "
            f"a rate factor in (0, 1] (got {rate_factor})."
        )
    starts = [0]  # grows as far as the steps that were asked for

    def length(cycle: int) -> int:
        return round(first_cycle_steps * length_factor**cycle)

    def schedule(step: int) -> float:
        while starts[-1] <= step:
            starts.append(starts[-1] + length(len(starts) - 1))
        cycle = bisect_right(starts, step) - 1
        return _half_cosine(rate * rate_factor**cycle, step - starts[cycle], length(cycle))

    return schedule


def linear(rate: float, total_steps: int) -> Schedule:
    """Fall from the rate to almost 0 along a straight line.

    >>> [linear(1.0, 4)(step) for step in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    _check_rate(rate)
    return lambda step: rate * max(0.0, 1 - step / total_steps)


def step_decay(rate: float, milestones: Sequence[int], factor: float = 0.1) -> Schedule:
    """Multiply the rate by the factor at each milestone.

    >>> [round(step_decay(1.0, [2, 3])(step), 3) for step in range(5)]
    [1.0, 1.0, 0.1, 0.01, 0.01]
    """
    _check_rate(rate)
    ordered = sorted(milestones)
    return lambda step: rate * factor ** bisect_right(ordered, step)


def selected_step(schedule: Schedule, total_steps: int) -> int:
    """Return the step after which the model is taken: the one with the lowest rate, the last among equals.

    Steps before the highest rate are a warm-up and never count. With cosine restarts this is the last step of
    the last completed cycle, unless the training stops so late in a longer one that the rate is lower there.

    >>> selected_step(cosine_restarts(1.0, 2), 7)  # cycles: steps 0-1, 2-4, and 5-8 cut after 6
    4
    >>> selected_step(constant(0.1), 7)
    6
    """
    if total_steps < 1:
        raise UserError(f"No step can be selected from {total_steps} steps; train for at least 1.")
    rates = [schedule(step) for step in range(total_steps)]
    peak = rates.index(max(rates))
    return min(range(peak, total_steps), key=lambda step: (rates[step], -step))


def _half_cosine(rate: float, step: int, steps: int) -> float:
    return 0.5 * rate * (1 + math.cos(math.pi * min(step / steps, 1.0)))


def _check_rate(rate: float) -> None:
    if not 0 <= rate < math.inf:
        raise UserError(f"The learning rate is {rate}; it must be a finite number, 0 or more.")


def _steps(rate: float, total_steps: int, steps_per_epoch: int) -> Schedule:
    """Decay tenfold after 2/3 and 5/6 of the training; the paper compares with decays after 40,000 and 50,000 steps."""
    return step_decay(rate, [math.ceil(2 * total_steps / 3), math.ceil(5 * total_steps / 6)])


# Each takes (rate, total_steps, steps_per_epoch).
SCHEDULES: dict[str, Callable[[float, int, int], Schedule]] = {
    "cosine_restarts": lambda rate, total_steps, steps_per_epoch: cosine_restarts(rate, steps_per_epoch),
    "cosine": lambda rate, total_steps, steps_per_epoch: cosine(rate, total_steps),
    "linear": lambda rate, total_steps, steps_per_epoch: linear(rate, total_steps),
    "steps": _steps,
    "constant": lambda rate, total_steps, steps_per_epoch: constant(rate),
}


def make_schedule(name: str, rate: float, total_steps: int, steps_per_epoch: int) -> Schedule:
    """Build a schedule by its name, with the lengths the paper gives it.

    >>> make_schedule("steps", 1.0, total_steps=60_000, steps_per_epoch=500)(39_999)
    1.0
    >>> make_schedule("cosin", 1.0, total_steps=10, steps_per_epoch=5)
    Traceback (most recent call last):
    karat.errors.UserError: Unknown schedule 'cosin'. Did you mean 'cosine'?
    Choose one of: constant, cosine, cosine_restarts, linear, steps.
    """
    return choose("schedule", name, SCHEDULES)(rate, total_steps, steps_per_epoch)
