"""Index streams: every pass holds every item once, batches are balanced, positions can be restored."""

import copy

import torch
from hypothesis import given
from hypothesis import strategies as st

from karat.data.samplers import BalancedStream, ShuffledStream


@given(items=st.integers(1, 20), batch=st.integers(1, 30), seed=st.integers(0, 99))
def test_every_pass_holds_every_item_once(items, batch, seed):
    stream = ShuffledStream(torch.arange(items), torch.Generator().manual_seed(seed))
    drawn = torch.cat([stream.next(batch) for _ in range(items)])  # items·batch draws: batch whole passes
    for one_pass in drawn.split(items):
        assert sorted(one_pass.tolist()) == list(range(items))


@given(counts=st.lists(st.integers(1, 5), min_size=2, max_size=4), batch=st.integers(1, 25), seed=st.integers(0, 99))
def test_balanced_batches_differ_by_one_at_most(counts, batch, seed):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    stream = BalancedStream(labels, torch.Generator().manual_seed(seed))
    for _ in range(3):
        shares = labels[stream.next(batch)].bincount(minlength=len(counts))
        # A batch may stand across two shuffled turns of the classes, each of which is one short at most.
        assert shares.max() - shares.min() <= 2
        assert shares.sum() == batch


def test_the_position_is_restored():
    labels = torch.tensor([0, 0, 1, 1, 1, 2])
    for make in (lambda g: BalancedStream(labels, g), lambda g: ShuffledStream(torch.arange(6), g)):
        stream = make(torch.Generator().manual_seed(1))
        stream.next(4)
        state = copy.deepcopy(stream.state_dict())
        expected = [stream.next(5).tolist() for _ in range(4)]
        other = make(torch.Generator().manual_seed(2))
        other.next(3)
        other.load_state_dict(state)
        assert [other.next(5).tolist() for _ in range(4)] == expected
