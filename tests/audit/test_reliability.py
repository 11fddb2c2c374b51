"""Whether qualities keep their word: scores by hand, and files only where the truth is known."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from records import made_up, uniform

from karat.audit.record import save_record
from karat.audit.reliability import reliability
from karat.audit.run_audit import write_audit
from karat.audit.settings import AuditSettings


def test_the_scores_by_hand():
    """Qualities 0.9 (right), 0.8 (wrong), 0.1 (wrong), 0 (right, at most 14 nats).

    Brier: (0.01 + 0.64 + 0.01 + 1)/4. Log score: −(log 0.9 + log 0.2 + log 0.9 + log 1e-6)/4. Bins: 0 and 0.1 share the
    first, with 0.05 claimed and a half right; the others differ by 0.8 and 0.1.
    """
    found = reliability(torch.tensor([0.9, 0.8, 0.1, 0.0]), torch.tensor([True, False, False, True]))
    assert found.brier == pytest.approx(1.66 / 4)
    assert found.log_score == pytest.approx(
        -(2 * torch.tensor(0.9).log() + torch.tensor(2e-7).log()).item() / 4, rel=1e-5
    )
    assert found.calibration_error == pytest.approx((2 * 0.45 + 0.8 + 0.1) / 4)
    assert [one.count for one in found.bins] == [2, 1, 1]
    assert found.changed_errors is None


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_every_label_is_in_the_bin_of_its_quality(labels):
    quality, right = (torch.tensor(column) for column in zip(*labels, strict=True))
    found = reliability(quality, right)
    assert sum(one.count for one in found.bins) == found.count == len(labels)
    assert 0 <= found.calibration_error <= 1
    for one in found.bins:
        assert one.low - 1e-5 <= one.claimed <= one.high + 1e-5


def test_a_run_with_known_truth_says_how_reliable_it_is(tmp_path):
    """The file of labels holds other rows, too, and is in another order."""
    record, true = made_up(uniform(4, 0.4), examples=300, trusted=40, test=0)
    save_record(record, tmp_path / "ledger.safetensors")
    assert write_audit(tmp_path).reliability is None
    assert not (tmp_path / "reliability.json").exists()
    lines = [f"{row},0,{label}\n" for row, label in enumerate(true.tolist())] + ["999,0,-1\n"]
    (tmp_path / "noisy_labels.csv").write_text("index,given_label,true_label\n" + "".join(reversed(lines)))
    found = write_audit(tmp_path, AuditSettings(0.2))
    wrong = (record.noisy.labels != true).double().mean().item()
    assert sum(one.count * (1 - one.right) for one in found.reliability.bins) / 300 == pytest.approx(wrong)
    changed = found.cleaned[found.cleaned["action"] == "changed"]
    right = changed["cleaned_label"] == [record.classes[true[row]] for row in changed["index"]]
    assert found.reliability.changed_errors == pytest.approx(1 - right.mean())
    assert json.loads((tmp_path / "reliability.json").read_text())["brier"] == found.reliability.brier
    (tmp_path / "noisy_labels.csv").write_text("index,given_label\n0,1\n")
    assert write_audit(tmp_path).reliability is None
    assert not (tmp_path / "reliability.json").exists()  # the old one would be taken for today's
