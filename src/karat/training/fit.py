"""The loop: all steps of a run, told to whoever listens."""

from collections.abc import Callable, Mapping
from typing import Any

from karat.progress_bar import ProgressBar
from karat.training.trainer import Trainer

_SHOWN = ("accuracy", "validation_accuracy", "given_label_accuracy")  # beside the progress: the first that there is


class Listener:
    """What a run tells while it goes on; this one does nothing with it.

    Where several processes take the steps together, each of them tells its own listener: one of them writes, the others
    are quiet. So a listener never decides what the loop does next.
    """

    def step_taken(self) -> None:
        """Hear that one more step is done."""

    def epoch_ended(self, metrics: Mapping[str, float]) -> None:
        """Hear what was measured after an epoch."""

    def checkpoint_due(self, state: dict[str, Any]) -> None:
        """Hear everything that the next step depends on; a copy must be made before the next step changes it."""

    def working(self, work: str, share: float) -> None:
        """Hear how much of some work between two steps is done; with 1 it is over."""


class BarListener(Listener):
    """Show steps, accuracy and the work between steps on a progress bar."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar

    def step_taken(self) -> None:
        """Move on by one step."""
        self._bar.advance()

    def epoch_ended(self, metrics: Mapping[str, float]) -> None:
        """Show the accuracy that says most."""
        name = next((name for name in _SHOWN if name in metrics), None)
        if name is not None:
            self._bar.advance(0, **{name: metrics[name]})

    def working(self, work: str, share: float) -> None:
        """Show the work."""
        self._bar.tell(work, share)


def fit(
    trainer: Trainer,
    listener: Listener | None = None,
    *,
    evaluate: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Take the steps that are left, until one after which `stop` is true; return whether all of them are done.

    `evaluate` measures the models where an epoch ends.
    """
    listener = listener or Listener()
    trainer.tell = listener.working
    while not trainer.finished:
        trainer.train_step()
        listener.step_taken()
        if evaluate and trainer.evaluation_due:
            listener.epoch_ended(trainer.end_epoch())
        asked_to_stop = stop() and not trainer.finished
        if trainer.checkpoint_due or asked_to_stop:
            listener.checkpoint_due(trainer.state_dict())
        if asked_to_stop:
            return False
    return True
