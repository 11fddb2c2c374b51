"""What helps differs with where users work: on the command line, or in Python."""

from typing import NamedTuple


class Remedies(NamedTuple):
    """How a user leaves a column out, and has missing numbers filled in."""

    leave_out: str
    fill_in: str


ON_THE_COMMAND_LINE = Remedies(
    "name the other columns in --data.features",
    "write --data.missing impute",
)
IN_PYTHON = Remedies(
    "drop it from X",
    "put an imputer in front",
)
