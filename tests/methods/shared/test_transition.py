"""Noise matrices recovered where the posterior is known, and the corrected loss against its definition."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from karat.methods.shared.transition import anchor_transition, corrected_cross_entropy, trusted_transition

NOISE = torch.tensor([[0.6, 0.3, 0.1], [0.0, 0.9, 0.1], [0.2, 0.2, 0.6]])


def test_both_estimates_recover_the_matrix_from_perfect_predictions():
    """If every example surely belongs to one class, p(given | x) is that class's row of the matrix."""
    labels = torch.tensor([2, 0, 1] * 10)
    predictions = NOISE[labels]
    torch.testing.assert_close(anchor_transition(predictions, anchor_rank=0.3), NOISE)
    torch.testing.assert_close(trusted_transition(predictions, labels), NOISE)


def test_anchor_is_the_example_at_its_rank():
    """200 examples, 2 classes, rank 0.3: place 0.3·200/2 = 30 from the top, so 30 examples are surer."""
    sure = torch.linspace(0, 1, 200)[torch.randperm(200)]
    transition = anchor_transition(torch.stack([sure, 1 - sure], dim=1), anchor_rank=0.3)
    assert (sure > transition[0, 0]).sum() == 30
    assert (1 - sure > transition[1, 1]).sum() == 30


@given(st.floats(0, 1), st.integers(1, 5), st.integers(2, 6), st.integers(0, 99))
def test_anchor_rows_are_distributions(rank, examples, classes, seed):
    predictions = torch.randn(examples, classes, generator=torch.Generator().manual_seed(seed)).softmax(dim=1)
    rows = anchor_transition(predictions, rank)
    assert rows.shape == (classes, classes)
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(classes))


def test_corrected_loss_is_the_log_of_the_noisy_posterior():
    logits = torch.randn(5, 3, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 1, 0])
    noisy_posterior = torch.einsum("bt,tg->bg", logits.softmax(dim=1), NOISE.double())
    expected = torch.nn.functional.nll_loss(noisy_posterior.log(), labels, reduction="none")
    torch.testing.assert_close(corrected_cross_entropy(logits, labels, NOISE), expected)


def test_corrected_loss_stays_finite_where_the_matrix_has_zeros():
    """A network sure of class 1 gives label 0 the probability T[1, 0] = 0."""
    logits = torch.tensor([[-300.0, 300.0, -300.0]], requires_grad=True)
    loss = corrected_cross_entropy(logits, torch.tensor([0]), NOISE).sum()
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
