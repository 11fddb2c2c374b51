"""Mistakes that a user can mend: one sentence with the remedy, shown without a traceback, exit code 2."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

NAMED = 5  # of a list in a sentence

Choice = TypeVar("Choice")


class UserError(ValueError):
    """Something the user gave cannot be used; the message says what, and what to do instead."""

    is_of_this_process = False  # of several that take the steps of a run together: this one says it


class Told(Exception):
    """Another process of the run has said what is wrong: this one ends without a word."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("Another process of this run has said what is wrong.")
        self.exit_code = exit_code


class DamagedFile(UserError):
    """A file is not what was written to it; where there is an older one, that one serves."""


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end; the exit code is 128 and its number: 130 for Ctrl-C, 143 for SIGTERM."""

    def __init__(self, number: int, message: str = "stopped") -> None:
        super().__init__(message)
        self.exit_code = 128 + number


def unreadable(path: object, error: OSError) -> UserError:
    """Return the error of a file that cannot be opened or read.

    >>> unreadable("labels.csv", FileNotFoundError(2, "No such file or directory"))
    UserError('Cannot read labels.csv (No such file or directory); check the path.')
    """
    return UserError(f"Cannot read {path} ({error.strerror or error}); check the path.")


def terminal_safe(text: object) -> str:
    r"""Return a user's text without characters that would steer a terminal or begin a line of their own.

    >>> terminal_safe("new\nline\x1b[2J")
    'new�line�[2J'
    """
    return "".join(character if character.isprintable() else "\ufffd" for character in str(text))


def named(items: Sequence[object], count: int = NAMED) -> str:
    """Return the first items in words.

    >>> named(["a", "b"]), named(range(9), count=2)
    ('a, b', '0, 1 and 7 more')
    """
    rest = len(items) - count
    return ", ".join(map(terminal_safe, items[:count])) + (f" and {rest} more" if rest > 0 else "")


def say(text: object = "") -> None:
    """Print lines that may quote a file which somebody sent, without what would steer the terminal."""
    print("\n".join(map(terminal_safe, str(text).split("\n"))))


def suggestion(name: str, legal: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the legal name nearest to a mistyped one, or nothing.

    >>> suggestion("iegg", ["ieg", "l2r"])
    " Did you mean 'ieg'?"
    >>> suggestion("zzz", ["ieg", "l2r"])
    ''
    """
    nearest = get_close_matches(name, list(legal), n=1)
    return f" Did you mean '{nearest[0]}'?" if nearest else ""


def choose(kind: str, name: object, table: Mapping[str, Choice]) -> Choice:
    """Look a name up in a table of choices; the error lists the legal names.

    >>> choose("method", "ieg", {"ieg": 1, "l2r": 2})
    1
    >>> choose("method", "iegg", {"ieg": 1, "l2r": 2})
    Traceback (most recent call last):
    karat.errors.UserError: Unknown method 'iegg'. Did you mean 'ieg'? Choose one of: ieg, l2r.
    """
    if not isinstance(name, str) or name not in table:
        near = suggestion(str(name), table)
        raise UserError(f"Unknown {kind} '{name}'.{near} Choose one of: {', '.join(sorted(table))}.")
    return table[name]
