"""Label issues, cleaned labels and suggestions of a record."""

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from records import made_up, uniform

from karat.audit.beliefs import Beliefs
from karat.audit.run_audit import audit
from karat.audit.settings import AuditSettings
from karat.audit.suggest import Looks, suggestions
from karat.audit.tables import clean, cleaned_labels, label_issues
from karat.errors import UserError
from karat.files.safe_csv import read_safe_csv, write_safe_csv

HOSTILE = ("<script>alert(1)</script>", "=1+1", "NA")


def test_issues_have_the_promised_columns_and_order():
    record, _ = made_up(uniform(4, 0.4), examples=200)
    issues = audit(record).issues
    assert issues.columns.tolist() == [
        *("id", "index", "given_label", "predicted_label", "is_label_issue", "label_quality", "suggested_label"),
        *("suggestion_confidence", "mean_weight", "mean_label_trust", "helpful_label", "mean_loss", "times_seen"),
    ]
    assert issues["label_quality"].is_monotonic_increasing
    assert sorted(issues["index"]) == list(range(200))
    assert (issues["id"] == "row " + issues["index"].astype(str)).all()
    kept = issues[~issues["is_label_issue"]]
    assert (kept["suggested_label"] == "").all()
    assert kept["suggestion_confidence"].isna().all()
    found = issues[issues["is_label_issue"]]
    assert (found["suggested_label"] != found["given_label"]).all()
    assert issues["mean_weight"].isna().all()
    assert (issues["helpful_label"] == "").all()


def test_cleaned_labels_by_their_definition():
    """Qualities 0.9 | 0.1, suggested with 0.9 | 0.4, with 0.5; 10% may be wrong, and (0.1 + 0.5)/2 would be."""
    record, _ = made_up(uniform(3, 0.0), examples=3, trusted=3, test=0)
    believed = Beliefs(
        quality=torch.tensor([0.9, 0.1, 0.4]),
        other=(record.noisy.labels + 1) % 3,
        confidence=torch.tensor([0.05, 0.9, 0.5]),
        predicted=record.noisy.labels,
    )
    table = cleaned_labels(record, believed, clean(believed, 0.1))
    assert table["action"].tolist() == ["kept", "changed", "review", "trusted", "trusted", "trusted"]
    assert table["confidence"].tolist() == pytest.approx([0.9, 0.9, 0.5, 1, 1, 1])
    assert table["cleaned_label"].tolist() == [
        table["given_label"][0],
        record.classes[int(believed.other[1])],
        "",
        *("class 0", "class 1", "class 2"),
    ]


def believed_of(confidence):
    """Return beliefs in which every given label is an issue with this suggestion, in a world of two classes."""
    nothing = torch.zeros(len(confidence), dtype=torch.int64)
    return Beliefs(1 - confidence, nothing, confidence, nothing)


@given(st.lists(st.floats(0.0, 1.0, width=32), max_size=30), st.floats(0.0, 1.0))
def test_no_larger_set_of_changes_keeps_the_promise(confidences, rate):
    """The changed ones keep the mean error within the rate; with the next best one they would not."""
    confidence = torch.tensor(confidences, dtype=torch.float64)
    changed, review = clean(believed_of(confidence), rate)
    assert not (changed & review).any()
    assert torch.equal(changed | review, confidence > 0.5)
    errors = 1 - confidence[changed]
    assert not len(errors) or errors.mean() <= rate + 1e-6
    if review.any():
        best = confidence[review].max()
        assert not len(errors) or best <= confidence[changed].min()
        assert torch.cat([errors, (1 - best)[None]]).mean() > rate


def test_a_calibrated_judge_keeps_the_share_of_errors():
    """Suggestions are right with just the probability that they claim: the share of wrong changes is the one asked for.

    With 20,000 labels and the rate 0.1 its standard error is about 0.003.
    """
    generator = torch.Generator().manual_seed(0)
    confidence = 0.5 + 0.5 * torch.rand(20_000, generator=generator, dtype=torch.float64)
    right = torch.rand(20_000, generator=generator, dtype=torch.float64) < confidence
    for rate in (0.02, 0.1, 0.2):
        changed, _ = clean(believed_of(confidence), rate)
        assert (~right[changed]).double().mean().item() == pytest.approx(rate, abs=0.012)


def test_the_estimate_says_what_is_changed_and_promised():
    record, _ = made_up(uniform(5, 0.4), error=0.1)
    for rate in (0.0, 0.02, 0.2):
        found = audit(record, settings=AuditSettings(rate))
        actions, changes = found.cleaned["action"].value_counts(), found.estimate.changes
        assert changes.error_rate == rate
        assert (changes.changed, changes.review) == (actions.get("changed", 0), actions.get("review", 0))
        assert changes.claimed_errors <= rate + 1e-6
        assert not changes.promised  # by predictions that have learned the labels
        assert "no promise" in str(changes)
    with pytest.raises(UserError, match="write a share from 0 to 1"):
        AuditSettings(5)


def test_cleaning_mends_more_than_it_breaks():
    record, true = made_up(uniform(5, 0.8))
    table = audit(record).cleaned
    assert len(table) == 2000 + 100
    assert table["index"].is_monotonic_increasing
    noisy = table[table["action"] != "trusted"]
    kept = noisy[noisy["action"] != "review"]
    right = kept["cleaned_label"].to_numpy() == [record.classes[label] for label in true[kept["index"].tolist()]]
    assert len(kept) > 0.9 * len(noisy)
    assert right.mean() > 0.9


def test_hostile_names_go_through_every_file(tmp_path):
    names = [f"{text}{number}" for number in range(40) for text in ("=1+", "../../", "a,'\"\n\r")]
    record, _ = made_up(uniform(3, 0.5), examples=60, trusted=60, test=0, names=names, classes=HOSTILE)
    found = audit(record)
    for number, table in enumerate([found.issues, found.cleaned, suggestions(record, found.beliefs, 10)]):
        path = tmp_path / f"{number}.csv"
        write_safe_csv(table, path)
        back = read_safe_csv(path)
        assert back.columns.tolist() == table.columns.tolist()
        for column in set(table.columns) & {"id", "given_label", "cleaned_label", "suggested_label", "reason"}:
            assert back[column].tolist() == table[column].tolist()
        assert set(back["given_label"]) <= set(HOSTILE)


def test_suggestions_are_doubtful_needed_and_diverse():
    """Class 2 has a tenth of the trusted examples of the others: with equal doubt its rows come first."""
    record, _ = made_up(uniform(3, 0.0), examples=300, trusted=0, test=0)
    trusted = torch.tensor([0] * 10 + [1] * 10 + [2])
    record = type(record)(**{**vars(record), "trusted": type(record.noisy)(("t",) * 21, torch.arange(21), trusted)})
    doubt = torch.full((300,), 0.4)
    doubt[:50] = 0.01  # nothing to learn from these
    believed = Beliefs(1 - doubt, (record.noisy.labels + 1) % 3, doubt - 0.005, record.noisy.labels)
    found = suggestions(record, believed, count=30)
    assert len(found) == 30
    assert found["rank"].tolist() == list(range(1, 31))
    assert found["index"].min() >= 50
    assert found["likely_label"][:6].tolist() == ["class 2"] * 6
    assert "only 1 trusted of class 2" in found["reason"][0]
    pairs = found["given_label"].value_counts()
    assert pairs["class 0"] >= 6  # no pair takes more than a fifth while there are others
    assert len(suggestions(record, believed, count=5000)) == 300
    with pytest.raises(UserError, match="at least 1"):
        suggestions(record, believed, count=0)


def test_the_first_suggestions_are_typical_of_each_class_and_then_doubtful():
    """Three classes around 0, 10 and 20: of 9 rows 6 are typical, two a class in turns, and 3 are in doubt."""
    record, true = made_up(uniform(3, 0.4), examples=300, trusted=0, test=0)
    features = 10.0 * true[:, None] + torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    looked = torch.arange(0, 300, 2)
    found = suggestions(record, audit(record).beliefs, 9, Looks(looked, features[looked]))
    first = found[found["reason"].str.startswith("typical of")]
    assert first["rank"].tolist() == [1, 2, 3, 4, 5, 6]
    assert first["likely_label"].tolist() == ["class 0", "class 1", "class 2"] * 2
    assert set(first["index"]) <= set(looked.tolist())
    assert found["index"].is_unique
    assert found["confidence"][6:].max() < first["confidence"].median()


def test_nothing_verified_is_said_and_widens_the_interval():
    record, true = made_up(uniform(3, 0.4), examples=600, trusted=0, test=0)
    estimate = audit(record).estimate
    assert estimate.low == 0
    assert (record.noisy.labels != true).double().mean() < estimate.high < 0.7
    assert estimate.calibrated_on == {"count": 0, "accuracy": None, "set": "none"}
    assert estimate.warnings[0].startswith("No row is trusted: labels count as right more often than wrong in any one")


def test_no_noisy_example_is_no_crash():
    record, _ = made_up(uniform(3, 0.0), examples=1)
    assert isinstance(label_issues(record, audit(record).beliefs), pd.DataFrame)
