"""Noise matrices: by formula, by Bayes' rule, found again by expectation-maximisation, anchors and trusted examples."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from karat.errors import UserError
from karat.noise_matrix import (
    anchor_transition,
    asymmetric_transition,
    check_transition,
    corrected_cross_entropy,
    fit_transition,
    label_likelihood,
    smoothing,
    symmetric_transition,
    true_posterior,
    trusted_transition,
    uniform_transition,
)

FORMULAS = [uniform_transition, symmetric_transition, asymmetric_transition]
NOISE = torch.tensor([[0.6, 0.3, 0.1], [0.0, 0.9, 0.1], [0.2, 0.2, 0.6]])
classes_ = st.integers(2, 6)
rates = st.floats(0, 1)
seeds = st.integers(0, 2**32 - 1)


def drawn(classes, examples, seed):
    """Return random predictions of the true classes, given labels and a random matrix, in float64."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(examples + classes, classes, generator=generator, dtype=torch.float64)
    predictions, matrix = logits.softmax(dim=1).split([examples, classes])
    return predictions, torch.randint(classes, (examples,), generator=generator), matrix


@given(formula=st.sampled_from(FORMULAS), classes=classes_, rate=rates)
def test_rows_are_distributions(formula, classes, rate):
    transition = formula(classes, rate)
    assert transition.dtype == torch.float64
    check_transition(transition, classes)


@given(classes=classes_, rate=rates)
def test_uniform_includes_the_true_class_and_the_others_exclude_it(classes, rate):
    """Uniform: a redrawn label hits the true class once in `classes`, so rate·(1 − 1/classes) are wrong."""
    wrong = 1 - uniform_transition(classes, rate).diagonal()
    torch.testing.assert_close(wrong, torch.full_like(wrong, rate * (1 - 1 / classes)))
    for transition in (symmetric_transition(classes, rate), asymmetric_transition(classes, rate)):
        wrong = 1 - transition.diagonal()
        torch.testing.assert_close(wrong, torch.full_like(wrong, rate))


@given(classes=classes_, rate=rates)
def test_uniform_and_symmetric_treat_all_wrong_classes_alike(classes, rate):
    for transition in (uniform_transition(classes, rate), symmetric_transition(classes, rate)):
        wrong = transition[~torch.eye(classes, dtype=torch.bool)]
        torch.testing.assert_close(wrong, wrong[:1].expand_as(wrong))


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, math.inf])
@pytest.mark.parametrize("formula", FORMULAS)
def test_rate_outside_0_to_1(formula, rate):
    with pytest.raises(UserError, match=r"The noise rate is .*: give a share from 0 to 1, such as 0\.8 for 80%\."):
        formula(10, rate)


def test_one_class_cannot_be_confused():
    with pytest.raises(UserError, match="at least 2 classes to confuse, and there are 1: add classes"):
        symmetric_transition(1, 0.5)


@pytest.mark.parametrize("class_map", [{0: 3}, {3: 0}, {-1: 0}, {0: -1}, {1: 1}])
def test_class_map_outside_the_classes(class_map):
    with pytest.raises(UserError, match="not two of the 3 classes: map a number from 0 to 2 to another one"):
        asymmetric_transition(3, 0.5, class_map)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, 0.0]], r"shape \(1, 2\): 2 classes need 2 rows \(true\) of 2 numbers \(given\)"),
        ([1.0, 0.0], r"shape \(2,\): 2 classes"),
        ([[1.5, -0.5], [0.0, 1.0]], "negative entry -0.5: give every entry a probability"),
        ([[1.0, 0.0], [0.5, 0.4]], "Row 1 of the transition matrix sums to 0.9: divide each row by its sum"),
        ([[math.nan, 1.0], [0.0, 1.0]], "NaN or infinite: give every entry a probability"),
    ],
)
def test_unusable_matrix(rows, message):
    with pytest.raises(UserError, match=message):
        check_transition(torch.tensor(rows), 2)


def test_the_posterior_is_bayes_rule():
    """p = (0.6, 0.4) and P(given 1 | true 0) = 0.1, P(given 1 | true 1) = 0.8: 0.06 against 0.32, 0.38 together."""
    p, label, noise = torch.tensor([[0.6, 0.4]]), torch.tensor([1]), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    torch.testing.assert_close(label_likelihood(p, label, noise), torch.tensor([0.38]))
    torch.testing.assert_close(true_posterior(p, label, noise), torch.tensor([[0.06, 0.32]]) / 0.38)


@given(classes=classes_, examples=st.integers(1, 20), seed=seeds)
def test_posteriors_sum_to_1_and_likelihoods_over_all_labels_too(classes, examples, seed):
    predictions, labels, matrix = drawn(classes, examples, seed)
    one = torch.ones(examples, dtype=torch.float64)
    torch.testing.assert_close(true_posterior(predictions, labels, matrix).sum(dim=1), one)
    over_labels = sum(label_likelihood(predictions, torch.full_like(labels, label), matrix) for label in range(classes))
    torch.testing.assert_close(over_labels, one)


@given(classes=classes_, seed=seeds)
def test_labels_that_are_never_wrong_decide_and_labels_that_say_nothing_do_not(classes, seed):
    predictions, labels, _ = drawn(classes, 10, seed)
    right, blind = torch.eye(classes, dtype=torch.float64), uniform_transition(classes, 1.0)
    torch.testing.assert_close(true_posterior(predictions, labels, right), right[labels])
    torch.testing.assert_close(true_posterior(predictions, labels, blind), predictions)


def test_what_cannot_be_is_finite():
    """A sure prediction of class 0 and a matrix without noise give label 1 the probability 0."""
    impossible = torch.tensor([[1.0, 0.0]]), torch.tensor([1]), torch.eye(2)
    assert true_posterior(*impossible).isfinite().all()
    assert label_likelihood(*impossible).log().isfinite().all()


@given(classes=classes_, matrices=st.integers(1, 3), seed=seeds)
def test_several_matrices_at_once_are_each_on_its_own(classes, matrices, seed):
    """Probabilities [example, fold, matrix, class], as the judges have them."""
    predictions, labels, _ = drawn(classes, 4 * 2 * matrices, seed)
    predictions, labels = predictions.view(4, 2, matrices, classes), labels[:4]
    noises = torch.stack([drawn(classes, 1, seed + place)[2] for place in range(matrices)])
    found = label_likelihood(predictions, labels, noises)
    for fold in range(2):
        for place, noise in enumerate(noises):
            expected = label_likelihood(predictions[:, fold, place], labels, noise)
            torch.testing.assert_close(found[:, fold, place], expected)


@given(classes=classes_, examples=st.integers(1, 30), seed=seeds)
def test_expectation_maximisation_never_lowers_the_likelihood(classes, examples, seed):
    """Without a prior each round maximises a lower bound that touches the likelihood where the round starts."""
    predictions, labels, matrix = drawn(classes, examples, seed)
    likelihoods = [label_likelihood(predictions, labels, matrix).log().sum()]
    for _ in range(5):
        matrix = fit_transition(predictions, labels, matrix, smoothing(0.0))
        check_transition(matrix, classes)
        likelihoods.append(label_likelihood(predictions, labels, matrix).log().sum())
    assert (torch.stack(likelihoods).diff() > -1e-9).all()


def test_sure_predictions_give_the_counted_shares():
    """Of 60 examples of class 0, 45 are given as 0 and 15 as 1; of 40 of class 1 all are right.

    A prior of 5 of every pair makes that (50, 20) of 70 and (5, 45) of 50, in one round and in all further ones.
    """
    sure = torch.eye(2, dtype=torch.float64)[[0] * 60 + [1] * 40]
    labels = torch.tensor([0] * 45 + [1] * 55)
    start = uniform_transition(2, 0.5)
    without = fit_transition(sure, labels, start, smoothing(0.0))
    torch.testing.assert_close(without, torch.tensor([[0.75, 0.25], [0.0, 1.0]], dtype=torch.float64))
    expected = torch.tensor([[50 / 70, 20 / 70], [5 / 50, 45 / 50]], dtype=torch.float64)
    for rounds in (1, 4):
        torch.testing.assert_close(fit_transition(sure, labels, start, smoothing(5.0), rounds), expected)


def test_a_prior_sees_the_counts():
    """A prior that adds as many labels as were counted, to the diagonal: 3 and 1 of class 0 become 3 + 4 and 1."""
    sure, labels = torch.eye(2)[[0, 0, 0, 0, 1]], torch.tensor([0, 0, 0, 1, 1])
    found = fit_transition(sure, labels, torch.full((2, 2), 0.5), lambda counts: counts.sum(dim=1).diag())
    torch.testing.assert_close(found, torch.tensor([[7 / 8, 1 / 8], [0.0, 1.0]]))


def test_a_matrix_keeps_its_precision_where_predictions_have_less():
    predictions, labels, matrix = drawn(3, 50, seed=0)
    found = fit_transition(predictions.float(), labels, matrix, smoothing(0.1), rounds=3)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.sum(dim=1), torch.ones(3, dtype=torch.float64), rtol=1e-12, atol=0)
    torch.testing.assert_close(found, fit_transition(predictions, labels, matrix, smoothing(0.1), 3), rtol=0, atol=1e-5)


def test_both_other_estimates_recover_the_matrix_from_perfect_predictions():
    """If every example surely belongs to one class, p(given | x) is that class's row of the matrix."""
    labels = torch.tensor([2, 0, 1] * 10)
    predictions = NOISE[labels]
    torch.testing.assert_close(anchor_transition(predictions, anchor_rank=0.3), NOISE)
    torch.testing.assert_close(trusted_transition(predictions, labels), NOISE)


def test_anchor_is_the_example_at_its_rank():
    """200 examples, 2 classes, rank 0.3: place 0.3·200/2 = 30 from the top, so 30 examples are surer."""
    sure = torch.linspace(0, 1, 200)[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    transition = anchor_transition(torch.stack([sure, 1 - sure], dim=1), anchor_rank=0.3)
    assert (sure > transition[0, 0]).sum() == 30
    assert (1 - sure > transition[1, 1]).sum() == 30


@given(rank=rates, examples=st.integers(1, 5), classes=classes_, seed=seeds)
def test_anchor_rows_are_distributions(rank, examples, classes, seed):
    predictions, _, _ = drawn(classes, examples, seed)
    rows = anchor_transition(predictions, rank)
    assert rows.shape == (classes, classes)
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(classes, dtype=torch.float64))


def test_corrected_loss_is_the_log_of_the_noisy_posterior():
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
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
