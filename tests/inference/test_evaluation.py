"""Accuracy, loss and probabilities, with logits chosen so that the answers are known."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from karat.errors import UserError
from karat.inference.evaluation import Accuracy, evaluate, evaluate_probabilities, predict_probabilities


def test_accuracies_and_loss_of_known_logits():
    """Every input has the logits 6, 5, ..., 0 of 7 classes: class k is ranked k + 1.

    Labels 0, 0, 3, 4, 5, 6 have ranks 1, 1, 4, 5, 6, 7: top-1 is 2/6, top-5 is 4/6. The cross-entropy of
    label k is log Σ exp(j) − (6 − k), whose mean is log Σ exp(j) − 6 + 18/6.
    """
    logits = torch.arange(6.0, -1.0, -1.0).repeat(6, 1)
    result = evaluate(nn.Identity(), logits, torch.tensor([0, 0, 3, 4, 5, 6]), batch_size=4)
    assert (result.top1, result.top5, result.count) == (2 / 6, 4 / 6, 6)
    assert result.loss == pytest.approx(math.log(sum(math.exp(j) for j in range(7))) - 3)


def test_top5_of_fewer_than_five_classes_is_one():
    logits = torch.randn(20, 3)
    assert evaluate(nn.Identity(), logits, torch.randint(3, (20,))).top5 == 1.0


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 50), st.integers(0, 1000))
def test_the_batch_size_does_not_matter(count, classes, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    whole = evaluate(nn.Identity(), logits, labels, batch_size=count)
    parts = evaluate(nn.Identity(), logits, labels, batch_size=batch_size)
    assert (whole.top1, whole.top5, whole.count) == (parts.top1, parts.top5, parts.count)
    assert whole.loss == pytest.approx(parts.loss, abs=1e-5)
    assert 0 <= whole.top1 <= whole.top5 <= 1
    assert whole.top1 == (logits.argmax(1) == labels).sum().item() / count
    torch.testing.assert_close(
        predict_probabilities(nn.Identity(), logits, batch_size), logits.softmax(1), atol=1e-6, rtol=0
    )


def test_every_part_gets_its_own_mode_back():
    """A frozen BatchNorm in a training network stays frozen, and statistics and gradients are left alone."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, labels = torch.randn(8, 3), torch.randint(3, (8,))
    assert evaluate(model, inputs, labels) == evaluate(model, inputs, labels)  # no dropout
    assert not predict_probabilities(model, inputs).requires_grad
    assert [module.training for module in model.modules()] == [True, True, False, True]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_mode_comes_back_after_an_error():
    model = nn.Linear(3, 3).train()
    with pytest.raises(RuntimeError):
        evaluate(model, torch.randn(2, 5), torch.tensor([0, 1]))
    assert model.training
    assert torch.is_grad_enabled()


def test_probabilities_are_float32_rows_that_sum_to_one():
    probabilities = predict_probabilities(nn.Linear(4, 3).bfloat16(), torch.randn(5, 4).bfloat16(), batch_size=2)
    assert probabilities.dtype == torch.float32
    torch.testing.assert_close(probabilities.sum(1), torch.ones(5))


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, 1], "3 inputs and 2 labels"), ([0, 1, 4], "from 0 to 4"), ([0, 1, -100], "from -100 to 1")],
)
def test_unusable_labels_are_refused(labels, message):
    """A label of −100 would otherwise be skipped by the cross-entropy without a word."""
    with pytest.raises(UserError, match=message):
        evaluate(nn.Identity(), torch.eye(3), torch.tensor(labels))


def test_precision_recall_and_confusions_of_a_known_matrix():
    """counts[true, predicted] = [[2, 1, 0], [0, 3, 0], [2, 0, 0]]: 5 of 8 are right, class 2 is never predicted.

    Precision 2/4, 3/4 and none; recall 2/3, 3/3, 0/2. A class without examples has no recall.
    """
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    predicted = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0])
    found = evaluate_probabilities(torch.eye(4)[predicted], labels, ["a", "b", "c", "d"])
    assert found.accuracy.top1 == 5 / 8
    assert [one.precision for one in found.classes] == [2 / 4, 3 / 4, None, None]
    assert [one.recall for one in found.classes] == [2 / 3, 1, 0, None]
    assert found.confusions == (("c", "a", 2), ("a", "b", 1))
    assert evaluate_probabilities(torch.eye(4)[predicted], labels, ["a", "b", "c", "d"], most=1).confusions[1:] == ()


def test_an_empty_set_is_refused():
    with pytest.raises(UserError, match="0 inputs"):
        evaluate(nn.Identity(), torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))


def test_the_result_is_frozen():
    with pytest.raises(AttributeError):
        Accuracy(1.0, 1.0, 0.0, 1).top1 = 0.5
