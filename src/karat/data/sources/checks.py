"""What must be right before the first step; each finding is one sentence with the remedy."""

import unicodedata
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from karat.data.readers import Array
from karat.data.sources.problems import Problems, counted
from karat.data.sources.rows import NOISY, TEST, TRUSTED, Rows
from karat.errors import UserError, named, terminal_safe


def sorted_classes(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the different labels, in numeric order where all are whole numbers.

    >>> sorted_classes(["10", "9", "10"]), sorted_classes(["10", "9", "cat"])
    (('9', '10'), ('10', '9', 'cat'))
    """
    classes = set(labels)
    if all(label.removeprefix("-").isdecimal() for label in classes):
        return tuple(sorted(classes, key=lambda label: (int(label), label)))
    return tuple(sorted(classes))


MOST_CLASSES = 50_000


def check_classes(rows: Rows, problems: Problems) -> tuple[str, ...]:
    """Check labels and parts; return the classes of the train rows in their order."""
    labels = np.array(rows.labels, dtype=object)
    empty = np.array([not label.strip() for label in rows.labels], dtype=bool)
    if empty.any():
        problems.errors.append(
            f"{counted(int(empty.sum()), 'row', 'has/have')} no label ({_rows(rows, empty)}): write one, or take the "
            "row out."
        )
    of_part = {part: set(labels[(rows.parts == part) & ~empty]) for part in (NOISY, TRUSTED, TEST)}
    known = of_part[NOISY] | of_part[TRUSTED]
    if len(known) > MOST_CLASSES:
        raise UserError(
            f"{rows.source} has {len(known):,} classes: name the labels with --data.label_column, if that is "
            f"another column; up to {MOST_CLASSES:,} classes can be learned."
        )
    order = [name for name in rows.class_order if name in known] or sorted_classes(sorted(known))
    classes = (*order, *sorted(known.difference(order)))
    if len(classes) < 2:
        found = f"one class ('{classes[0]}')" if classes else "no class"
        problems.errors.append(f"The train rows have {found}: give examples of at least 2.")
    untrusted = [name for name in classes if name not in of_part[TRUSTED]]
    if untrusted and of_part[TRUSTED]:
        problems.warnings.append(
            f"{counted(len(untrusted), 'class', 'has/have')} no trusted example ({named(untrusted)}): better verify "
            "at least one label of each."
        )
    if of_part[TRUSTED] and not (rows.parts == NOISY).any():
        problems.errors.append("All train rows are trusted: leave some noisy ones to learn from.")
    only_trusted = [name for name in classes if name not in of_part[NOISY]]
    if only_trusted and (rows.parts == NOISY).any():
        problems.warnings.append(
            f"Only trusted rows have the label {named(only_trusted)}: the class is learned from these alone."
        )
    only_test = sorted(of_part[TEST] - known)
    if only_test:
        problems.errors.append(
            f"Only test rows have the label {named(only_test)}: add such examples to the train rows, or leave these "
            "test rows out."
        )
    _check_variants(classes, problems)
    return tuple(classes)


def check_ids(rows: Rows, problems: Problems) -> None:
    """Check that no id of a file names two rows."""
    if not rows.has_ids or rows.names is None:
        return
    files = np.zeros(len(rows), dtype=int) if rows.files is None else rows.files
    counts = Counter(zip(files.tolist(), rows.names, strict=True))
    twice = [name or "an empty one" for (_, name), count in counts.items() if count > 1]
    if twice:
        problems.errors.append(
            f"{counted(len(twice), 'id', 'names/name')} more than one row ({named(twice)}): give each row an id of its "
            "own, or name another column in --data.id_column."
        )


def check_duplicates(rows: Rows, keys: Sequence[Hashable], problems: Problems) -> None:
    """Check rows of the same content: equal images are the same example, equal features often are not."""
    what = rows.content.noun
    table = pd.DataFrame(
        {"key": pd.factorize(np.array(keys, dtype=object))[0], "label": rows.labels, "part": rows.parts}
    )
    table = table[table.duplicated("key", keep=False)]
    if not len(table):
        return
    _check_leaks(rows, table, problems)
    trusted = _with_two_labels(table[table["part"] == TRUSTED])
    if len(trusted):
        sentence = (
            f"{counted(trusted['key'].nunique(), what, 'is/are')} trusted under two labels ({_pairs(rows, trusted)}): "
            "decide which label is right."
        )
        (problems.errors if rows.content.identifies else problems.warnings).append(sentence)
    train = _with_two_labels(table[table["part"] != TEST])
    noisy = train[~train["key"].isin(trusted["key"])]
    if len(noisy):
        problems.warnings.append(
            f"{counted(noisy['key'].nunique(), what, 'is/are')} in the train rows under two labels "
            f"({_pairs(rows, noisy)}): at most one can be right; training goes on with all of them."
        )


def _check_leaks(rows: Rows, table: pd.DataFrame, problems: Problems) -> None:
    """Check that no test row is learned from."""
    tested = set(table.loc[table["part"] == TEST, "key"])
    for part, certain in ((TRUSTED, rows.content.identifies), (NOISY, False)):
        leaked = table[(table["part"] == part) & table["key"].isin(tested)]
        if not len(leaked):
            continue
        kind = "trusted" if part == TRUSTED else "noisy"
        if part == TRUSTED and not certain and rows.names is not None:  # the same features and the same id
            ids = {rows.names[row] for row in table.index[table["part"] == TEST]}
            certain = any(rows.names[row] in ids for row in leaked.index)
        count = counted(len(leaked), f"{kind} {rows.content.noun}", "is/are")
        sentence = f"{count} also in the test part ({_named(rows, leaked.index)}): "
        if certain:
            problems.errors.append(f"{sentence}what is learned from cannot be tested on, so take them out of one part.")
        else:
            problems.warnings.append(f"{sentence}the test accuracy will flatter; better take them out of one part.")


def _with_two_labels(table: pd.DataFrame) -> pd.DataFrame:
    counts = table.groupby("key")["label"].transform("nunique")
    return table[counts > 1]


def _pairs(rows: Rows, table: pd.DataFrame) -> str:
    found = []
    for _, group in table.groupby("key", sort=False):
        different = group.drop_duplicates("label")
        found.append(
            " = ".join(terminal_safe(f"{rows.name(row)} as '{rows.labels[row]}'") for row in different.index[:2])
        )
        if len(found) == 3:
            break
    rest = table["key"].nunique() - len(found)
    return "; ".join(found) + (f"; and {rest:,} more" if rest > 0 else "")


def _check_variants(classes: Sequence[str], problems: Problems) -> None:
    """Warn of labels that a reader would take for the same."""
    variants: dict[str, list[str]] = {}
    for name in classes:
        seen = "".join(one for one in unicodedata.normalize("NFKC", name) if unicodedata.category(one) != "Cf")
        variants.setdefault(" ".join(seen.split()).casefold(), []).append(f"'{name}'")
    alike = [" and ".join(names) for names in variants.values() if len(names) > 1]
    if alike:
        problems.warnings.append(
            "Labels that differ in blanks, capitals or the encoding of characters alone are different classes here "
            f"({named(alike)}): write them alike if they mean the same."
        )


def _rows(rows: Rows, chosen: Array) -> str:
    return _named(rows, np.flatnonzero(chosen))


def _named(rows: Rows, indices: Sequence[int] | Array | pd.Index) -> str:
    return named([rows.name(int(row)) for row in indices[:6]] + [""] * (len(indices) - 6))
