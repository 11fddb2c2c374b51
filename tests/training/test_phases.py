"""Phases share the steps of a run."""

import pytest

from karat.errors import UserError
from karat.methods.method import Phase
from karat.training.phases import phase_spans


@pytest.mark.parametrize("shares", [(1.0,), (0.01, 0.99), (0.99, 0.01), (0.1, 0.1, 0.8)])
@pytest.mark.parametrize("steps", [3, 4, 1000])
def test_every_step_belongs_to_one_phase_and_every_phase_has_one(shares, steps):
    spans = phase_spans([Phase(share) for share in shares], steps)
    assert [step for span in spans for step in span] == list(range(steps))
    assert all(len(span) for span in spans)


def test_fewer_steps_than_phases():
    with pytest.raises(
        UserError, match=r"trains in 2 phases, and the run has 1 step: set training\.steps to 2 or more"
    ):
        phase_spans([Phase(0.5), Phase(0.5)], 1)


@pytest.mark.parametrize(
    ("steps", "ends"), [(1_200, [300, 600, 1_200]), (5_000, [1_000, 2_000, 5_000]), (15_000, [2_000, 4_000, 15_000])]
)
def test_what_a_phase_cannot_use_goes_to_the_last(steps, ends):
    """With 500 steps a pass: a quarter of 1,200 steps is 300; of 5,000 1,250, 1,000 at most; of 15,000 four passes."""
    judging = Phase(0.25, most_steps=1_000, most_epochs=4.0 if steps == 15_000 else 1.0)
    spans = phase_spans([judging, judging, Phase(0.5)], steps, steps_per_epoch=500)
    assert [span.stop for span in spans] == ends
