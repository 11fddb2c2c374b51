"""Eq. 3 and 4: pseudo labels and consistency."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from karat.algorithm.pseudo_labels import kl_consistency, log_probability, pseudo_labels

logits = arrays("float64", (5, 4), elements=st.floats(-20, 20)).map(torch.from_numpy)


@given(logits, logits, st.floats(0.2, 3.0))
def test_pseudo_labels_are_the_formula(a, b, temperature):
    """Pr = (softmax(a) + softmax(b)) / 2 and g = Pr^(1/τ) / Σ Pr^(1/τ), written out."""
    average = (a.softmax(1) + b.softmax(1)) / 2
    powered = average ** (1 / temperature)
    expected = powered / powered.sum(dim=1, keepdim=True)
    torch.testing.assert_close(pseudo_labels([a, b], temperature), expected, rtol=1e-8, atol=1e-12)


@given(logits, logits, st.floats(0.2, 1.0))
def test_sharpening_keeps_the_best_class_and_raises_it(a, b, temperature):
    plain, sharp = (pseudo_labels([a, b], t) for t in (1.0, temperature))
    best = plain.argmax(dim=1, keepdim=True)
    assert (sharp.gather(1, best) >= plain.gather(1, best) - 1e-12).all()
    torch.testing.assert_close(sharp.gather(1, best).squeeze(1), sharp.max(dim=1).values)
    torch.testing.assert_close(sharp.sum(dim=1), torch.ones(5, dtype=torch.float64))


@given(logits, st.floats(0.1, 50))
def test_normalized_logits_do_not_depend_on_their_scale(a, factor):
    a = a + torch.eye(5, 4, dtype=torch.float64)  # not all zero
    torch.testing.assert_close(log_probability(factor * a, True), log_probability(a, True), rtol=1e-6, atol=1e-8)


def test_normalizing_all_zero_logits_is_finite():
    assert log_probability(torch.zeros(2, 3), normalize=True).isfinite().all()


def test_consistency_is_the_mean_kl_divergence_over_examples_and_views():
    weak, strong = torch.randn(6, 3), [torch.randn(6, 3), torch.randn(6, 3)]
    p = weak.softmax(1)
    expected = torch.stack([(p * (p / z.softmax(1)).log()).sum(1) for z in strong]).mean()
    torch.testing.assert_close(kl_consistency(weak, strong), expected)


def test_consistency_gradient_goes_where_it_is_asked_to():
    for kind in ("both", "augmented"):
        weak, strong = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
        kl_consistency(weak, [strong], kind).backward()
        assert strong.grad.abs().sum() > 0
        assert (weak.grad is not None) == (kind == "both")
