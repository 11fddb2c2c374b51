import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.data.noise.labels import CIFAR10_CLASS_MAP, NoisyLabels, corrupt
from karat.errors import UserError
from karat.noise_matrix import asymmetric_transition, symmetric_transition, uniform_transition

BUILD = [uniform_transition, symmetric_transition, asymmetric_transition]
classes_ = st.integers(2, 6)
rates = st.floats(0, 1)
seeds = st.integers(0, 2**32 - 1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tolerance(draws, comparisons, failure=1e-9):
    """Bound |share − probability| for all comparisons at once, but for one chance in 1e9.

    Hoeffding: P(|share − p| >= t) <= 2·exp(−2·draws·t²); the union bound multiplies by the comparisons.
    """
    return math.sqrt(math.log(2 * comparisons / failure) / (2 * draws))


@settings(max_examples=50, deadline=None)
@given(build=st.sampled_from(BUILD), classes=classes_, rate=rates, seed=seeds)
def test_corrupt_realises_the_transition(build, classes, rate, seed):
    transition = build(classes, rate)
    draws = 4000
    noisy = corrupt(torch.arange(classes).repeat_interleave(draws), transition, generator(seed))
    allowed = tolerance(draws, comparisons=50 * classes**2)
    assert (noisy.realised_transition - transition).abs().max() <= allowed
    assert not noisy.realised_transition[transition == 0].any()  # what cannot happen never does


def test_uniform_80_percent_on_10_classes_is_72_percent_wrong():
    noisy = corrupt(torch.arange(10).repeat(10_000), uniform_transition(10, 0.8), generator())
    assert noisy.rate == pytest.approx(0.72, abs=tolerance(100_000, comparisons=1))


@given(classes=classes_, seed=seeds)
def test_symmetric_never_draws_the_true_class_when_flipped(classes, seed):
    noisy = corrupt(torch.arange(classes).repeat(100), symmetric_transition(classes, 1.0), generator(seed))
    assert noisy.rate == 1.0


def test_asymmetric_follows_the_map_and_leaves_the_rest():
    noisy = corrupt(torch.arange(10), asymmetric_transition(10, 1.0, CIFAR10_CLASS_MAP), generator())
    assert noisy.given.tolist() == [0, 1, 0, 5, 7, 3, 6, 7, 8, 1]


def test_corrupt_keeps_its_input_and_repeats_with_the_seed():
    labels = torch.randint(5, (200,), generator=generator(), dtype=torch.int32)
    before = labels.clone()
    first, second, other = (corrupt(labels, uniform_transition(5, 0.5), generator(s)) for s in (1, 1, 2))
    assert torch.equal(labels, before)
    assert torch.equal(first.true, before.long())
    assert torch.equal(first.given, second.given)
    assert not torch.equal(first.given, other.given)


def test_corrupt_takes_no_labels():
    assert corrupt(torch.empty(0, dtype=torch.int64), uniform_transition(3, 0.5), generator()).given.tolist() == []


def test_realised_transition_counts_pairs():
    noisy = NoisyLabels(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]), classes=3, transition=None)
    assert noisy.rate == 0.25
    assert noisy.realised_transition[:2].tolist() == [[0.5, 0.5, 0], [0, 1, 0]]
    assert noisy.realised_transition[2].isnan().all()  # no example of class 2: unknown


def test_without_true_labels_nothing_is_realised():
    noisy = NoisyLabels(torch.tensor([0, 1]), None, classes=2, transition=None)
    assert noisy.rate is None
    assert noisy.realised_transition is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 3]), "The labels reach from 0 to 3: number the 3 classes 0 to 2"),
        (torch.tensor([-1, 0]), "The labels reach from -1 to 0"),
        (torch.tensor([0.0, 1.0]), r"shape \(2,\) and type float32: give one integer per example"),
        (torch.tensor([[0, 1]]), r"shape \(1, 2\) and type int64"),
        (torch.tensor([True]), "type bool"),
    ],
)
def test_unusable_labels(labels, message):
    with pytest.raises(UserError, match=message):
        corrupt(labels, uniform_transition(3, 0.5), generator())
