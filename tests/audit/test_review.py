"""The review: what is applied, and one sentence for everything that cannot be."""

import pandas as pd
import pytest
from records import made_up, uniform

from karat.audit.record import save_record
from karat.audit.review import apply_decisions, read_decisions
from karat.audit.run_audit import audit, write_audit
from karat.audit.settings import AuditSettings
from karat.errors import UserError
from karat.files.safe_csv import read_safe_csv, write_safe_csv

CLASSES = ("=1+1", "<script>", "NA")
NAMES = [*("../../x", "=SUM(A1)", "", "null", 'a,"b"\n'), *(f"n{number}" for number in range(55))]


@pytest.fixture
def run(tmp_path):
    record, _ = made_up(uniform(3, 0.5), examples=40, trusted=20, test=0, names=NAMES, classes=CLASSES)
    save_record(record, tmp_path / "ledger.safetensors")
    return record, tmp_path


def decisions(folder, *rows, columns=("id", "index", "decision", "label")):
    path = folder / "decisions.csv"
    write_safe_csv(pd.DataFrame(list(rows), columns=list(columns)), path)
    return path


def given(record, row):
    return record.classes[int(record.noisy.labels[row])]


def test_decided_rows_are_trusted_with_their_verified_label(run):
    record, folder = run
    another = next(name for name in CLASSES if name != given(record, 1))
    path = decisions(
        folder,
        ("../../x", 0, "keep", given(record, 0)),
        ("=SUM(A1)", 1, "accept", another),
        ("", 2, "other", "NA"),
        ("null", 3, "unsure", ""),
        ('a,"b"\n', 4, "keep", ""),
        ('a,"b"\n', 4, "keep", ""),  # the same twice is no contradiction
    )
    applied = apply_decisions(folder, path)
    assert applied.path == folder / "labels.csv"
    assert applied.decided == 4
    assert applied.changed == 1 + (given(record, 2) != "NA")
    table = read_safe_csv(applied.path)
    assert table.columns.tolist() == ["id", "index", "label", "trusted"]
    assert table["id"].tolist() == NAMES
    assert table["index"].tolist() == list(range(60))
    assert table["label"][:5].tolist() == [given(record, 0), another, "NA", given(record, 3), given(record, 4)]
    assert table["trusted"].tolist() == [True, True, True, False, True] + [False] * 35 + [True] * 20
    assert table["label"][40:].tolist() == [CLASSES[number % 3] for number in range(20)]


def test_undecided_rows_can_carry_the_cleaned_label(run):
    record, folder = run
    applied = apply_decisions(folder, decisions(folder, ("n0", 5, "keep", "")), folder / "new.csv", labels="cleaned")
    assert applied.path == folder / "new.csv"
    cleaned = audit(record).cleaned
    found = read_safe_csv(applied.path)["label"]
    assert found[6:].tolist() == cleaned["cleaned_label"][6:].tolist()
    assert found[5] == given(record, 5)
    write_audit(folder, AuditSettings(0.0))  # which changes nothing: the next ones are these
    apply_decisions(folder, folder / "decisions.csv", folder / "new.csv", labels="cleaned")
    less = read_safe_csv(folder / "new.csv")["label"]
    assert less[6:].tolist() == audit(record, settings=AuditSettings(0.0)).cleaned["cleaned_label"][6:].tolist()
    assert less.tolist() != found.tolist()
    with pytest.raises(UserError, match="Choose one of: cleaned, given"):
        apply_decisions(folder, folder / "decisions.csv", labels="best")


def test_rows_are_found_by_index_where_there_is_no_id(run):
    record, folder = run
    path = decisions(folder, (7, "other", "NA"), columns=("index", "decision", "label"))
    assert read_decisions(path, record) == {7: "NA"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("nobody", 0, "keep", "")], "row 1: the run has no example 'nobody'"),
        ([("n0", 9, "keep", "")], "'n0' stands at index 5 of this run's data, not at 9"),
        ([("n0", 5, "perhaps", "")], "'perhaps' is no decision, write one of keep, accept, other, unsure"),
        ([("n0", 5, "other", "cat")], "'cat' of 'n0' is no class of the run"),
        ([("n0", 5, "accept", "")], "'' of 'n0' is no class of the run"),
        ([("n0", 5, "other", "NA"), ("n0", 5, "other", "=1+1")], "row 2: 'n0' is decided twice, as 'NA' and as '=1.1'"),
        ([("x", 0, "keep", "")] * 7, "; and 2 more"),
    ],
)
def test_mistakes_are_said_at_once_and_nothing_is_written(run, rows, message):
    _, folder = run
    with pytest.raises(UserError, match=message):
        apply_decisions(folder, decisions(folder, *rows))
    assert not (folder / "labels.csv").exists()


def test_a_keep_that_names_another_label_is_refused(run):
    record, folder = run
    another = next(name for name in CLASSES if name != given(record, 5))
    with pytest.raises(UserError, match="is to keep"):
        read_decisions(decisions(folder, ("n0", 5, "keep", another)), record)


def test_a_file_without_decisions_is_refused(run):
    record, folder = run
    path = decisions(folder, ("n0", "x"), columns=("id", "note"))
    with pytest.raises(UserError, match="has the columns id, note: give id or index, decision and label"):
        read_decisions(path, record)
