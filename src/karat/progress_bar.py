"""How far long work has come and when it will be done: a bar on a terminal, plain lines in a log file."""

import sys
from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

SECONDS_BETWEEN_LINES = 10.0


class ProgressBar:
    """Show the progress of `total` steps, of which `start` were done before (a resumed run).

    On a terminal this is a bar; elsewhere a plain line on stderr at most every ten seconds, and at the end:

        digits ieg  120/720  17%  ETA 0:42  loss 1.23  accuracy 91.2%

    The ETA is the mean time of a step since the start of this run, times the steps to go; work between steps that
    `tell` tells of does not count. A number stays in sight until a newer one comes. Those whose name ends in "accuracy"
    are fractions, shown in percent.

    >>> import io
    >>> log = io.StringIO()
    >>> with ProgressBar("digits ieg", total=2, console=Console(file=log, force_terminal=False)) as progress:
    ...     progress.advance(loss=1.5)
    ...     progress.advance(loss=1.234, accuracy=0.912)
    >>> print(log.getvalue(), end="")
    digits ieg  2/2  100%  in 0:00  loss 1.23  accuracy 91.2%
    """

    def __init__(self, description: str, total: int, start: int = 0, console: Console | None = None) -> None:
        # isatty alone decides: FORCE_COLOR and its kin would put control characters into log files.
        self._console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
        self._description, self._total, self._start, self._done = description, total, start, start
        self._numbers: dict[str, float] = {}
        self._work, self._work_seconds = "", 0.0
        self._bar: RichProgress | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            columns = [
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                _text("count"),
                _text("time"),
            ]
            # Redirecting is for prints that would break the bar; a piped stdout must stay a pipe.
            self._bar = RichProgress(
                *columns, _text("numbers"), console=self._console, redirect_stdout=sys.stdout.isatty()
            )

    def __enter__(self) -> "ProgressBar":
        self._began = self._last_line = self._last_step = monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task(
                self._description, total=self._total, completed=self._start, **self._texts(self._eta())
            )
            self._bar.start()
        return self

    def advance(self, n: int = 1, /, **numbers: float) -> None:
        """Count n more steps done and take over new numbers beside it."""
        self._done += n
        self._last_step = monotonic()
        self._numbers.update(numbers)
        self._show_if_due()

    def tell(self, work: str, share: float) -> None:
        """Show that so much of some work between two steps is done; with 1 it is over."""
        self._work = f"{work} {share:.0%}"
        self._show_if_due()
        if share >= 1:
            now = monotonic()
            self._work, self._work_seconds, self._last_step = "", self._work_seconds + now - self._last_step, now

    def _show_if_due(self) -> None:
        if self._bar is not None or monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._show(self._eta())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed = _clock_time(monotonic() - self._began)
        self._show(f"in {elapsed}" if self._done >= self._total else f"stopped after {elapsed}")
        if self._bar is not None:
            self._bar.stop()

    def _show(self, time: str) -> None:
        texts = self._texts(time)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, **texts)
        else:
            line = "  ".join([self._description, texts["count"], texts["time"], texts["numbers"]]).rstrip()
            self._console.file.write(line + "\n")
            self._console.file.flush()
            self._last_line = monotonic()

    def _texts(self, time: str) -> dict[str, Any]:
        # Rounded, but 100% is for what is done.
        percent = 100 if self._done >= self._total else min(99, round(100 * self._done / self._total))
        numbers = [_number(name, value) for name, value in self._numbers.items()]
        shown = "  ".join([*numbers, self._work] if self._work else numbers)
        return {"count": f"{self._done}/{self._total}  {percent}%", "time": time, "numbers": shown}

    def _eta(self) -> str:
        done = self._done - self._start
        if done <= 0:
            return "ETA -:--"
        seconds = monotonic() - self._began - self._work_seconds
        return f"ETA {_clock_time(seconds / done * max(self._total - self._done, 0))}"


def _text(field: str) -> TextColumn:
    return TextColumn(f"{{task.fields[{field}]}}", markup=False)


def _number(name: str, value: float) -> str:
    """Write a number as its name and three digits, or one decimal of a percentage.

    >>> _number("loss", 1.2345), _number("trusted_accuracy", 0.9123), _number("epoch", 1234)
    ('loss 1.23', 'trusted accuracy 91.2%', 'epoch 1234')
    """
    text = f"{value:.1%}" if name.endswith("accuracy") else str(value) if isinstance(value, int) else f"{value:.3g}"
    return f"{name.replace('_', ' ')} {text}"


def _clock_time(seconds: float) -> str:
    """Write a duration as minutes and seconds, with hours where there are any.

    >>> _clock_time(42.4), _clock_time(3723)
    ('0:42', '1:02:03')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
