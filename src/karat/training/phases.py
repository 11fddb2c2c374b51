"""The phases of a run: which steps each one has, and the learning rate over all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from karat.errors import UserError
from karat.methods.method import Phase
from karat.training.schedules import Schedule, make_schedule, selected_step


@dataclass(frozen=True)
class Course:
    """A run from its first step to its last: phases, the steps and the rate of each, and when the model is taken."""

    phases: tuple[Phase, ...]
    spans: tuple[range, ...]
    rate: Schedule
    selected_step: int

    def phase_at(self, step: int) -> int:
        """Return the number of the phase that a step belongs to; steps after the end count to the last."""
        return phase_at(self.spans, step)


def make_course(phases: Sequence[Phase], schedule: str, rate: float, total_steps: int, steps_per_epoch: int) -> Course:
    """Lay out a run with the named schedule in each of its phases."""
    spans = phase_spans(phases, total_steps, steps_per_epoch)
    rates = phased_schedule(schedule, rate, phases, spans, steps_per_epoch)
    return Course(tuple(phases), tuple(spans), rates, selected_in_last(rates, spans))


def phase_spans(phases: Sequence[Phase], total_steps: int, steps_per_epoch: int = 1) -> list[range]:
    """Give each phase its share of the steps, at least one and no more than it can use.

    >>> phase_spans([Phase(0.4), Phase(0.6)], 12)
    [range(0, 5), range(5, 12)]
    >>> phase_spans([Phase(0.5, most_steps=3, most_epochs=2), Phase(0.5)], 40, steps_per_epoch=5)
    [range(0, 10), range(10, 40)]
    """
    if total_steps < len(phases):
        raise UserError(
            f"The method trains in {len(phases)} phases, and the run has {total_steps} "
            f"step{'s' if total_steps > 1 else ''}: set training.steps to {len(phases)} or more."
        )
    ends: list[int] = []
    done = 0.0
    for number, phase in enumerate(phases):
        done += min(phase.share, max(phase.most_steps, phase.most_epochs * steps_per_epoch) / total_steps)
        left_for_others = len(phases) - 1 - number
        earliest = (ends[-1] if ends else 0) + 1
        ends.append(max(earliest, min(round(done * total_steps), total_steps - left_for_others)))
    ends[-1] = total_steps
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def phased_schedule(
    name: str, rate: float, phases: Sequence[Phase], spans: Sequence[range], steps_per_epoch: int
) -> Schedule:
    """Return the rate at every step of the run: each phase has the named schedule over its own steps.

    >>> rate = phased_schedule("cosine", 1.0, [Phase(0.5), Phase(0.5, rate=0.1)], [range(0, 2), range(2, 4)], 1)
    >>> [round(rate(step), 3) for step in range(4)]
    [1.0, 0.5, 0.1, 0.05]
    """
    parts = [
        make_schedule(name, rate * phase.rate, len(span), steps_per_epoch)
        for phase, span in zip(phases, spans, strict=True)
    ]

    def schedule(step: int) -> float:
        number = phase_at(spans, step)
        return parts[number](step - spans[number].start)

    return schedule


def phase_at(spans: Sequence[range], step: int) -> int:
    """Return the number of the phase that a step belongs to; steps after the end count to the last."""
    return next((number for number, span in enumerate(spans) if step in span), len(spans) - 1)


def selected_in_last(schedule: Schedule, spans: Sequence[range]) -> int:
    """Return the step of the last phase after which the model is taken (see `selected_step`)."""
    last = spans[-1]
    return last.start + selected_step(lambda step: schedule(last.start + step), len(last))
