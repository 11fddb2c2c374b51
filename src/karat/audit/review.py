"""The review of a run: decisions about labels, checked, become the labels of the next training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from karat.audit.record import AuditRecord, load_record
from karat.audit.run_audit import believe, settings_used
from karat.audit.tables import clean, cleaned_labels
from karat.errors import UserError, choose, named, suggestion
from karat.files.safe_csv import read_safe_csv, write_safe_csv

DECISIONS = ("keep", "accept", "other", "unsure")


class Place(NamedTuple):
    """A train example: its name, its place in the data (`index` in the files), the given label."""

    name: str
    row: int
    label: str


class Applied(NamedTuple):
    """Where the new labels are, how many decisions they hold and how many of them changed a label."""

    path: Path
    decided: int
    changed: int
    trusted: int
    examples: int


def apply_decisions(folder: Path, decisions: Path, out: Path | None = None, labels: str = "given") -> Applied:
    """Write labels.csv from the ledger of a run and a file of decisions.

    `out` is a folder or a .csv file; None is the run's folder. `labels` are those that undecided examples carry:
    "given", so that the next training judges anew, or "cleaned".
    """
    use_cleaned = choose("kind of labels", labels, {"given": False, "cleaned": True})
    record = load_record(folder / "ledger.safetensors")
    verified = read_decisions(decisions, record)
    given = dict(
        zip(record.noisy.index.tolist(), (record.classes[label] for label in record.noisy.labels.tolist()), strict=True)
    )
    undecided = given
    if use_cleaned:
        believed = believe(record)[1]
        cleaned = cleaned_labels(record, believed, clean(believed, settings_used(folder).error_rate))
        undecided = dict(zip(cleaned["index"].tolist(), cleaned["cleaned_label"].tolist(), strict=True))
    table = new_labels(record, verified, undecided)
    path = _target(folder if out is None else out)
    write_safe_csv(table, path)
    changed = sum(given.get(index, label) != label for index, label in verified.items())
    return Applied(path, len(verified), changed, int(table["trusted"].sum()), len(table))


def read_decisions(path: Path, record: AuditRecord) -> dict[int, str]:
    """Return the verified label of each decided example by its place in the data; unsure ones are left out."""
    return {row: label for row, label in read_all_decisions(path, record).items() if label is not None}


def read_all_decisions(path: Path, record: AuditRecord) -> dict[int, str | None]:
    """Return the verified label of each decided example by its place in the data; None where somebody is unsure.

    The file has the columns `id` or `index`, `decision` and `label`, as the review page exports it. All mistakes are
    said at once: an unknown example, a label that is no class, two decisions that contradict each other.
    """
    table = read_safe_csv(path)
    if "decision" not in table or not {"id", "index"} & set(table.columns):
        raise UserError(
            f"{path} has the columns {named(list(table.columns), 20) or 'none'}: give id or index, decision and label, "
            "as the review page exports them."
        )
    places = _places(record)
    by_name = {place.name: place for place in places.values()}
    problems: list[str] = []
    verified: dict[int, str | None] = {}
    for number, row in enumerate(_records(table), start=1):
        try:
            place = _place(row, places, by_name)
            label = _label(row, place, record.classes)
            if label is None:
                verified.setdefault(place.row, None)
                continue
            if verified.get(place.row) is None:
                verified[place.row] = label
            if verified[place.row] != label:
                raise UserError(f"'{place.name}' is decided twice, as '{verified[place.row]}' and as '{label}'")
        except UserError as error:
            problems.append(f"row {number}: {error}")
    if problems:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise UserError(f"{path} cannot be applied ({shown}): mend these rows, nothing was written.")
    return verified


def new_labels(record: AuditRecord, verified: Mapping[int, str], undecided: Mapping[int, str]) -> pd.DataFrame:
    """Return `id, index, label, trusted` of every train example: decided ones are trusted with their verified label.

    `undecided` has the labels of the others by their place in the data; an empty one says: leave the example out.
    """
    trusted = set(record.trusted.index.tolist())
    places = sorted(_places(record).values(), key=lambda place: place.row)
    return pd.DataFrame(
        {
            "id": pd.Series([place.name for place in places], dtype=object),
            "index": [place.row for place in places],
            "label": pd.Series(
                [
                    verified.get(place.row, place.label if place.row in trusted else undecided[place.row])
                    for place in places
                ],
                dtype=object,
            ),
            "trusted": [place.row in trusted or place.row in verified for place in places],
        }
    )


def _target(out: Path) -> Path:
    return out if out.suffix == ".csv" and not out.is_dir() else out / "labels.csv"


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): cell for name, cell in row.items()} for row in table.to_dict("records")]


def _places(record: AuditRecord) -> dict[int, Place]:
    return {
        index: Place(name, index, record.classes[label])
        for rows in (record.noisy, record.trusted)
        for name, index, label in zip(rows.names, rows.index.tolist(), rows.labels.tolist(), strict=True)
    }


def _place(row: Mapping[str, Any], places: Mapping[int, Place], by_name: Mapping[str, Place]) -> Place:
    index = None if pd.isna(row.get("index")) else int(row["index"])
    if "id" in row:
        name = str(row["id"])
        place = by_name.get(name)
        if place is None:
            raise UserError(f"the run has no example '{name}'")
        if index is not None and index != place.row:
            raise UserError(f"'{name}' stands at index {place.row} of this run's data, not at {index}")
        return place
    if index is None or index not in places:
        raise UserError(f"the run has no example at index {'(empty)' if index is None else index}")
    return places[index]


def _label(row: Mapping[str, Any], place: Place, classes: tuple[str, ...]) -> str | None:
    decision, label = str(row["decision"]).strip().lower(), str(row.get("label") or "")
    if decision not in DECISIONS:
        raise UserError(f"'{row['decision']}' is no decision, write one of {', '.join(DECISIONS)}")
    if decision == "unsure":
        return None
    if decision == "keep":
        if label not in ("", place.label):
            raise UserError(f"'{place.name}' is to keep '{place.label}', but its label says '{label}'")
        return place.label
    if label not in classes:
        raise UserError(f"'{label}' of '{place.name}' is no class of the run.{suggestion(label, classes)}")
    return label
