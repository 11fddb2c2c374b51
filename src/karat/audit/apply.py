"""Decisions become the labels of the next training."""

from pathlib import Path
from typing import NamedTuple

from karat.audit.cleaned_labels import cleaned_labels
from karat.audit.decisions import new_labels, read_decisions
from karat.audit.record import load_record
from karat.audit.run_audit import believe
from karat.errors import choose
from karat.files.safe_csv import write_safe_csv


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
        cleaned = cleaned_labels(record, believe(record)[1])
        undecided = dict(zip(cleaned["index"].tolist(), cleaned["cleaned_label"].tolist(), strict=True))
    table = new_labels(record, verified, undecided)
    path = _target(folder if out is None else out)
    write_safe_csv(table, path)
    changed = sum(given.get(index, label) != label for index, label in verified.items())
    return Applied(path, len(verified), changed, int(table["trusted"].sum()), len(table))


def _target(out: Path) -> Path:
    return out if out.suffix == ".csv" and not out.is_dir() else out / "labels.csv"
