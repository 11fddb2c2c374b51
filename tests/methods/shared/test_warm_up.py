"""Warming up: methods change between epochs only."""

from karat.methods.shared.warm_up import warming_up
from karat.methods.step import Progress


def test_warm_up_ends_with_an_epoch():
    """With 3 epochs of 4 steps a warm-up of 0.4·12 = 4.8 steps holds until the epoch that begins at step 8."""
    found = [warming_up(Progress(step, total_steps=12, steps_per_epoch=4), 0.4) for step in range(12)]
    assert found == [True] * 8 + [False] * 4
