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
