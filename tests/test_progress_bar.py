"""Progress on a terminal and in a log file, with a clock that the test turns."""

import io
import sys

import pytest
from rich.console import Console

from karat import progress_bar as progress_module
from karat.progress_bar import ProgressBar


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress_module, "monotonic", clock)
    return clock


@pytest.fixture
def plain():
    return Console(file=io.StringIO(), force_terminal=False)


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_plain_lines_come_every_ten_seconds_and_at_the_end(clock, plain):
    """Steps of 4 s pass 10 s at the 3rd, 6th and 9th: there 10 − k steps of 4 s remain, 28, 16 and 4 s."""
    with ProgressBar("digits ieg", total=10, console=plain) as progress:
        for step in range(10):
            clock.now += 4
            progress.advance(loss=2 / (step + 1))
    assert plain.file.getvalue().splitlines() == [
        "digits ieg  3/10  30%  ETA 0:28  loss 0.667",
        "digits ieg  6/10  60%  ETA 0:16  loss 0.333",
        "digits ieg  9/10  90%  ETA 0:04  loss 0.222",
        "digits ieg  10/10  100%  in 0:40  loss 0.2",
    ]


def test_the_time_of_a_resumed_run_counts_only_its_own_steps(clock, plain):
    """From 100 of 720, 20 steps in 10 s are 0.5 s each: the other 600 take 300 s."""
    with ProgressBar("digits ieg", total=720, start=100, console=plain) as progress:
        clock.now += 10
        progress.advance(20, loss=1.234, accuracy=0.912)
    first, last = plain.file.getvalue().splitlines()
    assert first == "digits ieg  120/720  17%  ETA 5:00  loss 1.23  accuracy 91.2%"
    assert last == "digits ieg  120/720  17%  stopped after 0:10  loss 1.23  accuracy 91.2%"


def test_numbers_stay_until_newer_ones_come(clock, plain):
    with ProgressBar("x", total=2, console=plain) as progress:
        progress.advance(loss=1.0, test_accuracy=0.5, epoch=3)
        progress.advance(loss=0.5)
    assert plain.file.getvalue() == "x  2/2  100%  in 0:00  loss 0.5  test accuracy 50.0%  epoch 3\n"


def test_only_finished_work_is_at_a_hundred_percent(clock, plain):
    """999 of 1000 would round to 100%."""
    with ProgressBar("x", total=1000, start=999, console=plain):
        pass
    assert plain.file.getvalue() == "x  999/1000  99%  stopped after 0:00\n"


def test_an_error_is_not_swallowed_and_the_last_step_is_told(clock, plain):
    progress = ProgressBar("x", total=8, console=plain)

    def work():
        with progress:
            progress.advance(2)
            clock.now += 3600
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert plain.file.getvalue() == "x  2/8  25%  stopped after 1:00:00\n"


@pytest.mark.parametrize("total", [0, 5])
def test_a_finished_run_has_nothing_to_do(clock, plain, total):
    with ProgressBar("x", total=total, start=total, console=plain):
        pass
    assert plain.file.getvalue() == f"x  {total}/{total}  100%  in 0:00\n"


def test_without_a_terminal_stderr_gets_no_control_characters(capsys, monkeypatch):
    """Even where FORCE_COLOR asks for colour, as continuous integration likes to do."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressBar("digits [ieg]", total=3) as progress:
        progress.advance(3, loss=float("nan"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "digits [ieg]  3/3  100%  in 0:00  loss nan\n"


def test_a_terminal_shows_a_bar(clock, terminal):
    """After 120 of 720 steps in 8.4 s the other 600 take 42 s. Brackets are text, not rich markup."""
    stdout = sys.stdout
    with ProgressBar("digits [ieg]", total=720, console=terminal) as progress:
        clock.now += 8.4
        progress.advance(120, loss=1.234, accuracy=0.912)
        progress._bar.refresh()
        assert sys.stdout is stdout  # not a terminal: what is piped stays piped
    written = terminal.file.getvalue()
    assert "\x1b[" in written
    for text in [
        "digits [ieg]",
        "━",
        "120/720  17%",
        "ETA 0:42",
        "loss 1.23  accuracy 91.2%",
        "stopped after 0:08",
    ]:
        assert text in written


def test_a_bar_fits_into_eighty_columns(clock, terminal):
    terminal.width = 80
    with ProgressBar("digits ieg", total=720, console=terminal) as progress:
        progress.advance(720, loss=1.234, accuracy=0.912)
    written = terminal.file.getvalue()
    assert "loss 1.23  accuracy 91.2%" in written
    assert "…" not in written


def test_the_bar_is_taken_down_after_an_error(clock, terminal):
    with pytest.raises(KeyError), ProgressBar("x", total=8, console=terminal) as progress:
        raise KeyError
    assert progress._bar.live.is_started is False


def test_work_between_steps_is_told_and_does_not_count(clock, plain):
    """20 s of looking, then four steps of 3 s: the six others take 18 s."""
    with ProgressBar("digits karat", total=10, console=plain) as progress:
        for share in (0.25, 0.5, 0.75, 1.0):
            clock.now += 5
            progress.tell("looking at the inputs", share)
        for _ in range(4):
            clock.now += 3
            progress.advance()
    assert plain.file.getvalue().splitlines() == [
        "digits karat  0/10  0%  ETA -:--  looking at the inputs 50%",
        "digits karat  0/10  0%  ETA -:--  looking at the inputs 100%",
        "digits karat  4/10  40%  ETA 0:18",
        "digits karat  4/10  40%  stopped after 0:32",
    ]
