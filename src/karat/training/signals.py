"""A run that is asked to stop finishes its step, writes a checkpoint and ends; asked again, it ends at once."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from karat.errors import Stopped

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def asked_to_stop(say: Callable[[str], None]) -> Iterator[Callable[[], int]]:
    """Yield what returns the number of the signal that asked to stop, 0 before; a second signal raises Stopped.

    Only the main thread hears signals: in any other one nobody asks.
    """
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:
            raise Stopped(number)
        heard.append(number)
        say("stopping after this step, with a checkpoint; once more stops at once.")

    before = {}
    try:
        for number in STOPPING:
            before[number] = signal.signal(number, hear)
    except ValueError:  # not the main thread
        before = {}
    try:
        yield lambda: heard[0] if heard else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
