"""Learning rate schedules against their formulas, and the step that each selects."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.errors import UserError
from karat.training.schedules import (
    SCHEDULES,
    constant,
    cosine,
    cosine_restarts,
    make_schedule,
    selected_step,
    step_decay,
)


def test_cosine_values():
    """½(1+cos(πt/4)) at t = 0..4 is 1, ½+√2/4, ½, ½−√2/4, 0; later steps stay at 0."""
    root = math.sqrt(2) / 4
    rates = [cosine(1.0, 4)(step) for step in range(6)]
    assert rates == pytest.approx([1, 0.5 + root, 0.5, 0.5 - root, 0, 0], abs=1e-15)


def test_warmup_rises_linearly_to_the_first_cosine_step():
    """With 3 warm-up steps the rates are 1/4, 2/4, 3/4 and then the cosine's first value, 4/4."""
    schedule = cosine(0.4, 10, warmup_steps=3)
    assert [schedule(step) for step in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert schedule(3 + 5) == pytest.approx(cosine(0.4, 7)(5))


def test_restarts_begin_each_cycle_at_the_reduced_rate():
    """From 10 steps, the lengths are 10, 15, 22.5 → 22, 33.75 → 34: starts at 0, 10, 25, 47, 81."""
    schedule = cosine_restarts(0.1, 10)
    starts = [0, 10, 25, 47, 81]
    assert [schedule(start) for start in starts] == pytest.approx([0.1 * 0.9**n for n in range(5)])
    for n, (start, end) in enumerate(pairwise(starts)):
        for step in range(start, end):
            expected = 0.05 * 0.9**n * (1 + math.cos(math.pi * (step - start) / (end - start)))
            assert schedule(step) == pytest.approx(expected)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_a_schedule_has_no_memory(steps):
    """Asking in any order gives the same rates: the cycle table that grows inside is no state."""
    shared = cosine_restarts(0.1, 7)
    assert [shared(step) for step in steps] == [cosine_restarts(0.1, 7)(step) for step in steps]


@given(st.integers(4, 60), st.integers(1, 2000))
def test_restarts_select_the_end_of_the_last_completed_cycle(first, total):
    """A last rate is A·(1+cos(π(L−1)/L))/2 ≈ A(π/2L)²: lower in each longer, lower cycle.

    A cycle cut m ≥ 1 steps early ends near 0.9·A·((m+1)·π/(2·1.5·L))², which is (m+1)²·0.4 ≥ 1.6 times as
    much: it never wins. Rounding moves the factor 1.5 too far in cycles of 1 to 3 steps.
    """
    end, length, completed = 0, float(first), []
    while end + round(length) <= total:
        end += round(length)
        completed.append(end - 1)
        length *= 1.5
    assert selected_step(cosine_restarts(0.1, first), total) == (completed[-1] if completed else total - 1)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 300), st.integers(1, 50))
def test_every_schedule_selects_its_last_lowest_rate(name, total, epoch):
    schedule = make_schedule(name, 0.3, total, epoch)
    rates = [schedule(step) for step in range(total)]
    chosen = selected_step(schedule, total)
    assert rates[chosen] == min(rates)
    assert all(rate > rates[chosen] for rate in rates[chosen + 1 :])
    assert all(0 <= rate <= 0.3 for rate in rates)


def test_a_truncated_cycle_wins_when_its_rate_is_lower():
    """With factor 10, cycle 1 has 40 steps after 4; cut one step early it ends near 0.9·(π/40)² < (π/8)²."""
    schedule = cosine_restarts(1.0, 4, length_factor=10)
    assert selected_step(schedule, 43) == 42
    assert selected_step(schedule, 24) == 3


def test_equal_cycles_select_the_last_one():
    schedule = cosine_restarts(1.0, 5, length_factor=1, rate_factor=1)
    assert selected_step(schedule, 23) == 19


def test_a_warmup_is_never_selected():
    """Of 10 steps with 8 for warming up, step 0 has rate 1/9 and the last has ½: still the last is taken."""
    assert selected_step(cosine(1.0, 10, warmup_steps=8), 10) == 9


@pytest.mark.parametrize("total", [1, 2, 3, 7, 60_000])
def test_steps_decay_after_two_thirds_and_five_sixths(total):
    """Step t is in the second stage when t ≥ 2T/3 and in the third when t ≥ 5T/6."""
    schedule = make_schedule("steps", 1.0, total, 1)
    for step in {0, total // 2, 2 * total // 3, 5 * total // 6, total - 1, 39_999, 40_000, 50_000}:
        stage = (3 * step >= 2 * total) + (6 * step >= 5 * total)
        assert schedule(step) == pytest.approx(0.1**stage)


def test_step_decay_takes_milestones_in_any_order():
    assert step_decay(1.0, [5, 2], factor=0.5)(3) == 0.5


def test_names_build_the_schedules_they_name():
    for step in (0, 3, 11, 19):
        assert make_schedule("constant", 0.2, 20, 5)(step) == constant(0.2)(step)
        assert make_schedule("cosine", 0.2, 20, 5)(step) == cosine(0.2, 20)(step)
        assert make_schedule("cosine_restarts", 0.2, 20, 5)(step) == cosine_restarts(0.2, 5)(step)


@pytest.mark.parametrize(
    "build",
    [
        lambda: constant(-0.1),
        lambda: constant(math.nan),
        lambda: cosine(0.1, 0),
        lambda: cosine(0.1, 5, warmup_steps=5),
        lambda: cosine_restarts(0.1, 0),
        lambda: cosine_restarts(0.1, 5, length_factor=0.5),
        lambda: cosine_restarts(0.1, 5, rate_factor=0.0),
        lambda: selected_step(constant(0.1), 0),
        lambda: make_schedule("polynomial", 0.1, 5, 5),
    ],
)
def test_impossible_settings_are_refused(build):
    with pytest.raises(UserError):
        build()
