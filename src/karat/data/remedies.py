"""What helps differs with where users work: on the command line, with arrays in a file, or in Python."""

from typing import NamedTuple


class Remedies(NamedTuple):
    """How a user says which rows are trusted, leaves a column out, and has missing numbers filled in."""

    mark_trusted: str
    leave_out: str
    fill_in: str


ON_THE_COMMAND_LINE = Remedies(
    "mark the rows whose labels you verified, a few of each class, with true in a column trusted, in a folder or split "
    "called trusted, or in data of their own given with --data.trusted",
    "name the other columns in --data.features",
    "write --data.missing impute",
)
IN_ARRAYS = ON_THE_COMMAND_LINE._replace(
    mark_trusted="write true for the rows whose labels you verified, a few of each class, into the array trusted"
)
IN_PYTHON = Remedies(
    "verify some labels, a few of each class, and pass trusted=mask, which is True for these rows",
    "drop it from X",
    "put an imputer in front",
)
