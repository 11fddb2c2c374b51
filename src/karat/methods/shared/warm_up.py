"""What changes in the course of a run: warming up, and weights that rise."""

from karat.methods.step import Progress


def warming_up(progress: Progress, share: float) -> bool:
    """Return whether the epoch of this step began before `share` of the steps: methods change between epochs only."""
    return progress.epoch * progress.steps_per_epoch < share * progress.total_steps


def ramp(progress: Progress, start: float, length: float) -> float:
    """Return a weight that rises linearly from 0 at the share `start` of the steps to 1 after a further `length`.

    >>> ramp(Progress(step=5, total_steps=8, steps_per_epoch=4), start=0.5, length=0.25)
    0.5
    """
    done = progress.share - start
    return min(max(done / length, 0.0), 1.0) if length > 0 else float(done >= 0)
