"""Tables of text in .csv and .tsv files, packed or not. Cells stay what they say: '01' and 'NA' are no numbers."""

import csv
import gzip
import warnings
import zlib
from pathlib import Path

import pandas as pd

from karat.errors import UserError
from karat.files.memory_need import refuse_large_text
from karat.files.required import require

TEXT_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def read_text_table(path: Path, remedy: str | None = None) -> pd.DataFrame:
    """Read a table of UTF-8 text under the names in its first line; an error may have a remedy of its own.

    A .tsv has tabs, all others the first of comma, semicolon and tab that is in their first line. Rows may end early,
    in empty cells, but not be longer than the first line.
    """
    require(path, "check the path")
    try:
        refuse_large_text(path)
        separator, names = _header(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                path,
                sep=separator,
                dtype=str,
                keep_default_na=False,
                index_col=False,
                names=names,
                header=0,
                encoding="utf-8-sig",
            )
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8 ({error.reason}): {remedy or 'save it as UTF-8'}.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}): {remedy or 'check the file'}.") from error
    except pd.errors.EmptyDataError as error:
        hint = "write a line with the names of the columns and one line for each row"
        raise UserError(f"{path} is empty: {remedy or hint}.") from error
    except (ValueError, csv.Error, pd.errors.ParserWarning) as error:  # pandas' own errors are ValueErrors
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. ")
        hint = "give each row one cell for each column, and put cells with a separator in them into double quotes"
        raise UserError(f"{path} has rows that do not fit its first line ({reason}): {remedy or hint}.") from error
    return frame.fillna("")  # rows that end early


def refuse_doubles(path: Path, names: list[str]) -> None:
    """Raise a UserError where two columns have one name."""
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise UserError(f"{path} has more than one column '{double[0]}': give each column a name of its own.")


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the separator, as the ending or else the first line has it, and the names of the columns."""
    name = path.name.lower()
    with (
        gzip.open(path, "rt", encoding="utf-8-sig") if name.endswith(".gz") else path.open(encoding="utf-8-sig") as file
    ):
        first = file.readline()
        separator = "\t" if name.removesuffix(".gz").endswith(".tsv") else _separator(first)
        file.seek(0)
        names = next(csv.reader(file, delimiter=separator), [])
    if not any(column.strip() for column in names):
        raise pd.errors.EmptyDataError
    refuse_doubles(path, names)
    return separator, names


def _separator(line: str) -> str:
    return next((mark for mark in (",", ";", "\t") if mark in line), ",")
