"""Each warning where it belongs, and none where all is well."""

from dataclasses import replace

import torch
from records import made_up, uniform

from karat.audit.run_audit import audit
from karat.audit.warnings_list import warnings_of


def found(record, metrics=()):
    return " ".join(audit(record, metrics).estimate.warnings)


def test_a_good_run_has_no_warning():
    assert found(made_up(uniform(5, 0.4), error=0.01)[0], [{"collapsed_share": 0.0}, {"epoch": 2}]) == ""


def test_collapsed_weights():
    """Early collapse is forgiven: only the second half of the run counts."""
    record, _ = made_up(uniform(5, 0.4))
    assert "All weights were 0 in 80%" in found(record, [{"collapsed_share": 0.0}, {"collapsed_share": 0.8}])
    assert "All weights" not in found(record, [{"collapsed_share": 1.0}, {"collapsed_share": 0.0}])


def test_few_trusted_examples():
    assert "Fewer than 5 trusted examples of 'class 2', 'class 3'" in found(made_up(uniform(4, 0.4), trusted=18)[0])


def test_an_overfitted_trusted_set():
    record, _ = made_up(uniform(4, 0.4), error=0.3)
    record.trusted_ledger.probabilities.copy_(torch.eye(4)[record.trusted.labels])
    assert "The trusted set is overfitted: 100%" in found(record)
    believed, estimate = audit(record).beliefs, audit(record).estimate
    own = replace(record, posterior=torch.full((len(record.noisy.labels), 4), 0.25))  # a verdict of its own
    assert "overfitted" not in " ".join(warnings_of(own, believed, estimate))


def test_a_class_of_issues_only():
    record, _ = made_up(uniform(4, 0.4))
    believed = audit(record).beliefs
    believed.quality[record.noisy.labels == 2] = 0.1
    warnings = " ".join(warnings_of(record, believed, audit(record).estimate))
    assert "Nearly every label of 'class 2' is called wrong" in warnings


def test_rows_that_training_never_saw():
    record, _ = made_up(uniform(4, 0.4))
    record.ledger.times_seen[:3] = 0
    assert "never looked at 3 of 2,000" in found(record)
