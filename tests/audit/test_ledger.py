"""The ledger's columns and the ranked table read off them."""

import torch

from karat.audit.label_issues import label_issues
from karat.audit.ledger import MEMORY, Ledger


def test_columns_follow_their_definitions():
    """Two batches of two: weights are multiples of the batch's average, probabilities are remembered with MEMORY."""
    ledger = Ledger(examples=3, classes=2)
    first, second = torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.2, 0.8]])
    ledger.record(torch.tensor([0, 2]), first, torch.tensor([0.75, 0.25]), torch.tensor([1.0, 0.0]))
    ledger.record(torch.tensor([0, 1]), second, torch.tensor([0.25, 0.75]), torch.tensor([0.0, 0.0]))
    assert ledger.times_seen.tolist() == [2, 1, 1]
    assert ledger.weight.tolist() == [0.5, 1.5, 0.5]
    assert ledger.mean_weight.tolist() == [(1.5 + 0.5) / 2, 1.5, 0.5]
    assert ledger.mean_label_trust.tolist() == [0.5, 0.0, 0.0]
    torch.testing.assert_close(ledger.probabilities[0], torch.tensor([MEMORY, 1 - MEMORY]))
    torch.testing.assert_close(ledger.probabilities[1], second[1])


def test_an_example_twice_in_a_batch_counts_twice():
    """A batch can run across two passes over the data: the later entry is the last one, both are summed."""
    ledger = Ledger(examples=2, classes=2)
    probabilities = torch.tensor([[0.1, 0.9], [0.5, 0.5], [0.6, 0.4]])
    ledger.record(torch.tensor([1, 0, 1]), probabilities, torch.tensor([0.2, 0.3, 0.5]), torch.tensor([1.0, 1.0, 0.0]))
    assert ledger.times_seen.tolist() == [1, 2]
    torch.testing.assert_close(ledger.weight, torch.tensor([0.9, 1.5]))
    torch.testing.assert_close(ledger.weight_sum, torch.tensor([0.9, 2.1]))
    assert ledger.label_trust.tolist() == [1.0, 0.0]
    torch.testing.assert_close(ledger.probabilities[1], torch.tensor([0.6, 0.4]))


def test_state_is_restored():
    ledger, other = Ledger(2, 2), Ledger(2, 2)
    ledger.record(torch.tensor([1]), torch.tensor([[0.3, 0.7]]))
    other.load_state_dict(ledger.state_dict())
    torch.testing.assert_close(other.state_dict(), ledger.state_dict(), equal_nan=True)


def test_issues_are_ranked_and_keep_the_labels_as_written():
    ledger = Ledger(3, 2)
    ledger.record(torch.arange(3), torch.tensor([[0.6, 0.4], [0.1, 0.9], [0.8, 0.2]]))
    issues = label_issues(ledger, torch.tensor([0, 0, 1]), torch.tensor([10, 11, 12]), ["<b>", "=1+1"])
    assert issues["index"].tolist() == [11, 12, 10]
    assert issues["given_label"].tolist() == ["<b>", "=1+1", "<b>"]
    assert issues["predicted_label"].tolist() == ["=1+1", "<b>", "<b>"]
    assert issues["is_label_issue"].tolist() == [True, True, False]
    assert issues["mean_weight"].isna().all()
