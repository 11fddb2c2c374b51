"""The estimate and its interval against noise that is known."""

import json
from dataclasses import replace

import pytest
import torch
from records import made_up, next_class, uniform

from karat.audit.estimate import bounds, save_estimate, wilson
from karat.audit.ledger import Ledger
from karat.audit.record import load_record, save_record
from karat.audit.run_audit import audit


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("test", [500, 0])
@pytest.mark.parametrize(
    ("noise", "examples"),
    [
        (uniform(10, 0.0), 2000),
        (uniform(10, 0.2), 2000),
        (uniform(10, 0.8), 2000),
        (next_class(10, 0.4), 2000),
        (uniform(2, 0.5), 2000),
        (uniform(3, 0.4), 60),
        (uniform(100, 0.5), 2000),
    ],
)
def test_the_interval_holds_the_true_rate(noise, examples, test, seed):
    record, true = made_up(noise, examples, test=test, trusted=max(100, 2 * len(noise)), seed=seed)
    estimate = audit(record).estimate
    rate = (record.noisy.labels != true).double().mean().item()
    assert estimate.low <= rate <= estimate.high
    assert estimate.low <= estimate.rate <= estimate.high
    assert abs(estimate.rate - rate) < (0.05 if examples > 100 else 0.15)


def test_a_network_that_errs_more_has_a_wider_interval():
    widths = []
    for error in (0.01, 0.1, 0.3):
        estimate = audit(made_up(uniform(5, 0.4), error=error)[0]).estimate
        widths.append(estimate.high - estimate.low)
    assert widths[0] < widths[1] < widths[2]


def test_labels_known_by_heart_are_said():
    """The network repeats every given label but is right on 80% of the test: up to twice its error may be wrong."""
    record, _ = made_up(uniform(5, 0.25), error=0.2)
    record.ledger.probabilities.copy_(0.9 * torch.eye(5)[record.noisy.labels] + 0.02)
    estimate = audit(record).estimate
    assert estimate.high > 0.35
    assert "by heart" in estimate.note


def test_bounds_are_the_ends_of_the_formula():
    """Without sampling errors: d = 0.5, e = 0.2 gives (0.5 − 0.2)/0.8 and 0.5/0.8; nothing verified bounds nothing."""
    low, high = bounds(0.5, 10**9, 0.8, 10**9)
    assert low == pytest.approx(0.375, abs=1e-3)
    assert high == pytest.approx(0.625, abs=1e-3)
    assert bounds(0.5, 100, 0.0, 0) == (0.0, 1.0)
    assert bounds(0.01, 100, 0.9, 100)[0] == 0.0


def test_wilson_against_published_values():
    """Newcombe 1998, table I, method 3: 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611."""
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_the_file_has_the_promised_keys(tmp_path):
    record, _ = made_up(uniform(3, 0.4), examples=300, classes=("=1+1", "<b>", ""))
    estimate = audit(record).estimate
    save_estimate(estimate, tmp_path / "noise_estimate.json")
    found = json.loads((tmp_path / "noise_estimate.json").read_text())
    assert {"rate", "low", "high", "level", "examples", "transition", "classes", "per_class", "calibrated_on"} < set(
        found
    )
    assert found["classes"] == ["=1+1", "<b>", ""]
    assert found["calibrated_on"]["count"] == 500
    assert [sum(row) for row in found["transition"]] == pytest.approx([1, 1, 1])
    counts = torch.bincount(record.noisy.labels)
    assert [one["count"] for one in found["per_class"]] == counts.tolist()
    total = sum(one["count"] * one["wrong_share"] for one in found["per_class"])
    assert total / 300 == pytest.approx(found["rate"])


def test_hypotheses_that_trusted_labels_leave_open_make_the_interval(tmp_path):
    """Two of three hypotheses weigh as much: from 0.2 − 1.64·σ to 0.3 + 1.65·σ, with 5% of each beyond.

    σ² is the sum of 0.02² and r·(1 − r)/2000. The third weighs 0.1%, which moves the ends by a thousandth. Without
    trusted labels none of them is ruled out, and the bounds hold.
    """
    record, _ = made_up(uniform(5, 0.3), test=0)
    rates = torch.tensor([[0.2, 0.02, 0.4995], [0.3, 0.02, 0.4995], [0.9, 0.02, 0.001]])
    record = replace(record, rates=rates)
    estimate = audit(record).estimate
    deviations = [(0.02**2 + rate * (1 - rate) / 2000) ** 0.5 for rate in (0.2, 0.3)]
    assert estimate.low == pytest.approx(0.2 - 1.6449 * deviations[0], abs=0.0015)
    assert estimate.high == pytest.approx(0.3 + 1.6449 * deviations[1], abs=0.0015)
    save_record(record, tmp_path / "ledger.safetensors")
    assert torch.equal(load_record(tmp_path / "ledger.safetensors").rates, rates)
    nobody = replace(record.trusted, names=(), index=torch.empty(0).long(), labels=torch.empty(0).long())
    alone = replace(record, trusted=nobody, trusted_ledger=Ledger(0, 5))
    assert audit(alone).estimate == audit(replace(alone, rates=None)).estimate
