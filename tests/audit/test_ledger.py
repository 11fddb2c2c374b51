"""The ledger's columns: their definitions, their memory, their way through a file."""

import math

import pytest
import torch

import karat.audit.ledger
from karat.audit.ledger import MEMORY, Ledger
from karat.errors import UserError


def logits(*probabilities):
    return torch.tensor(probabilities).log()


def test_columns_follow_their_definitions():
    """Two batches of two: weights are multiples of the batch's average, probabilities are remembered with MEMORY."""
    ledger, given = Ledger(examples=3, classes=2), torch.tensor([0, 1])
    first, second = logits([1.0, 0.0], [0.5, 0.5]), logits([0.25, 0.75], [0.2, 0.8])
    ledger.record(torch.tensor([0, 2]), first, given, torch.tensor([0.75, 0.25]), torch.tensor([1.0, 0.0]))
    ledger.record(torch.tensor([0, 1]), second, given, torch.tensor([0.25, 0.75]), torch.tensor([0.0, 0.0]))
    assert ledger.times_seen.tolist() == [2, 1, 1]
    assert ledger.weight.tolist() == [0.5, 1.5, 0.5]
    assert ledger.mean_weight.tolist() == [(1.5 + 0.5) / 2, 1.5, 0.5]
    assert ledger.mean_label_trust.tolist() == [0.5, 0.0, 0.0]
    torch.testing.assert_close(ledger.probabilities[0, 1].item(), (1 - MEMORY) * 0.75)
    torch.testing.assert_close(ledger.probabilities[1], torch.tensor([0.2, 0.8]))
    torch.testing.assert_close(ledger.mean_loss[:2], -torch.tensor([math.log(0.25) / 2, math.log(0.8)]))


def test_an_example_twice_in_a_batch_counts_twice():
    """A batch can run across two passes over the data: the later entry is the last one, both are summed."""
    ledger = Ledger(examples=2, classes=2)
    batch = logits([0.1, 0.9], [0.5, 0.5], [0.6, 0.4])
    rows, given = torch.tensor([1, 0, 1]), torch.zeros(3, dtype=torch.int64)
    ledger.record(rows, batch, given, torch.tensor([0.2, 0.3, 0.5]), torch.tensor([1.0, 1.0, 0.0]))
    assert ledger.times_seen.tolist() == [1, 2]
    torch.testing.assert_close(ledger.weight, torch.tensor([0.9, 1.5]))
    torch.testing.assert_close(ledger.weight_sum, torch.tensor([0.9, 2.1]))
    assert ledger.label_trust.tolist() == [1.0, 0.0]
    torch.testing.assert_close(ledger.probabilities[1], torch.tensor([0.6, 0.4]))


def test_what_only_some_steps_report_is_averaged_over_those():
    """Weight 1 of 2 in one step (twice the average) and none in the next: the mean weight is that of one step."""
    ledger, rows, given = Ledger(2, 2), torch.arange(2), torch.tensor([0, 1])
    same = logits([0.5, 0.5], [0.5, 0.5])
    ledger.record(rows, same, given, weights=torch.tensor([1.0, 0.0]))
    ledger.record(rows, same, given)
    assert ledger.mean_weight.tolist() == [2.0, 0.0]
    assert ledger.mean_label_trust.isnan().all()
    assert ledger.helpful_class.tolist() == [-1, -1]
    assert ledger.pseudo_label.tolist() == [-1, -1]


def test_pseudo_label_and_best_class_are_remembered():
    """Scores are scaled to length 1 before they are averaged: a step with large gradients does not outvote others.

    Row 0: class 2 first, then MEMORY of it stays against class 0 of a step with a thousand times larger scores.
    """
    ledger, given = Ledger(1, 3), torch.tensor([1])
    row, flat = torch.tensor([0]), torch.zeros(1, 3)
    ledger.record(
        row, flat, given, pseudo_labels=torch.tensor([[0.1, 0.2, 0.7]]), class_scores=torch.tensor([[0, 0, 1.0]])
    )
    ledger.record(
        row, flat, given, pseudo_labels=torch.tensor([[0.6, 0.2, 0.2]]), class_scores=torch.tensor([[1e3, 0, 0]])
    )
    assert ledger.pseudo_label.tolist() == [0]
    torch.testing.assert_close(ledger.pseudo_confidence, torch.tensor([0.6]))
    assert ledger.helpful_class.tolist() == [2]


def test_memory_does_not_grow_with_the_epochs():
    ledger = Ledger(4, 3)
    sizes = {name: column.nbytes for name, column in ledger.state_dict().items()}
    for _ in range(5):
        ledger.record(torch.arange(4), torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64), torch.full((4,), 0.25))
    assert {name: column.nbytes for name, column in ledger.state_dict().items()} == sizes


def test_many_classes_take_two_bytes_each():
    assert Ledger(2, 100).probabilities.dtype == torch.float32
    many = Ledger(2, 101)
    many.record(torch.arange(2), torch.zeros(2, 101), torch.zeros(2, dtype=torch.int64))
    assert many.probabilities.dtype == torch.float16
    torch.testing.assert_close(many.probabilities.float().sum(dim=1), torch.ones(2), rtol=1e-3, atol=0)


def test_large_columns_are_mapped_to_a_file_that_leaves_no_trace(tmp_path, monkeypatch):
    """The mapped ledger holds the same numbers; its file has no name in the folder, so nothing is left behind."""
    small = Ledger(50, 4)
    monkeypatch.setattr(karat.audit.ledger, "MAPPED_FROM", 1)
    mapped = Ledger(50, 4, tmp_path)
    assert list(tmp_path.iterdir()) == []
    for ledger in (small, mapped):
        ledger.record(torch.arange(50), torch.eye(50)[:, :4], torch.arange(50) % 4, torch.full((50,), 0.02))
    torch.testing.assert_close(mapped.state_dict(), small.state_dict(), equal_nan=True, rtol=0, atol=0)


def test_state_is_restored():
    ledger, other = Ledger(2, 2), Ledger(2, 2)
    ledger.record(torch.tensor([1]), torch.tensor([[0.3, 0.7]]), torch.tensor([0]))
    other.load_state_dict(ledger.state_dict())
    torch.testing.assert_close(other.state_dict(), ledger.state_dict(), equal_nan=True)
    with pytest.raises(UserError, match="belongs to other data"):
        Ledger(3, 2).load_state_dict(ledger.state_dict())
