import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.data.trusted import rank_within_class, trusted_split
from karat.errors import UserError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(deadline=None)
@given(
    per_class=st.integers(1, 4),
    extra=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
)
def test_split_is_balanced_sorted_disjoint_and_whole(per_class, extra, seed):
    counts = torch.tensor([per_class + more for more in extra])
    labels = torch.arange(len(extra)).repeat_interleave(counts)
    labels = labels[torch.randperm(len(labels), generator=generator(seed))]
    trusted, noisy = trusted_split(labels, per_class, generator(seed))
    assert labels[trusted].bincount().tolist() == [per_class] * len(extra)
    assert labels[noisy].bincount().tolist() == extra
    assert torch.equal(torch.cat([trusted, noisy]).sort().values, torch.arange(len(labels)))
    for indices in (trusted, noisy):
        assert torch.equal(indices, indices.sort().values)
    assert torch.equal(trusted, trusted_split(labels, per_class, generator(seed))[0])


def test_every_example_is_trusted_equally_often():
    """2,000 splits trust 1 of 4: Binomial(2000, 1/4) has deviation 19.4; 6 deviations fail once in 1e8."""
    chosen = torch.zeros(8)
    source = generator()
    for _ in range(2000):
        chosen[trusted_split(torch.tensor([0, 1] * 4), 1, source)[0]] += 1
    assert (chosen - 500).abs().max() < 6 * 19.4


@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=30), seed=st.integers(0, 2**32 - 1))
def test_ranks_number_each_class(labels, seed):
    labels = torch.tensor(labels)
    ranks = rank_within_class(labels, generator(seed))
    for label in labels.unique():
        members = ranks[labels == label]
        assert members.sort().values.tolist() == list(range(len(members)))


@pytest.mark.parametrize(
    ("labels", "per_class", "message"),
    [
        ([0, 0, 0, 0, 1, 1], 3, "Class 1 has 2 examples, too few for 3 trusted and at least 1 noisy: "),
        ([0, 0, 0, 0, 1, 1], 2, "Class 1 has 2 examples, .*: ask for at most 1 per class"),
        ([0, 0, 1], 1, "Class 1 has 1 example, .*: add examples to the class or leave it out"),
        ([0, 0, 1, 1], -1, "There are to be -1 trusted examples per class: ask for 0, which is none, or more"),
        ([], 1, "no labels to choose trusted examples from: give at least 2 examples of each class"),
    ],
)
def test_impossible_split(labels, per_class, message):
    with pytest.raises(UserError, match=message):
        trusted_split(torch.tensor(labels, dtype=torch.int64), per_class, generator())


def test_none_may_be_trusted():
    trusted, noisy = trusted_split(torch.tensor([0, 1, 1]), 0, generator())
    assert trusted.tolist() == []
    assert noisy.tolist() == [0, 1, 2]
