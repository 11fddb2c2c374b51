"""Lines 4 and 5: the split by weight and the mixup anchored on trusted examples (eq. 9)."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from karat.algorithm.joint_batch import joint_batch, mixup_factors, split_targets

COUNT = 20_000


def test_beta_factors_have_the_moments_of_beta_half_half():
    """Beta(a, a) with a = 1/2: mean 1/2, variance 1/(4·(2a + 1)) = 1/8, P(β < 1/4) = 2/π·arcsin(1/2) = 1/3.

    The standard errors of n draws are sqrt(1/8/n), and at most sqrt(1/4/n) for a share; 4 of them are allowed.
    """
    factors = mixup_factors(COUNT, "beta", torch.Generator().manual_seed(0))
    error = 4 * (0.25 / COUNT) ** 0.5
    assert abs(factors.mean() - 1 / 2) < error
    assert abs(factors.var() - 1 / 8) < error
    assert abs((factors < 0.25).double().mean() - 1 / 3) < error


def test_approximate_factors_lean_to_the_first_partner():
    """max(u²/2, 1 − u²/2) = 1 − u²/2 lies in [1/2, 1] and has mean 1 − E[u²]/2 = 5/6."""
    factors = mixup_factors(COUNT, "approximate", torch.Generator().manual_seed(0))
    assert factors.min() >= 0.5
    assert factors.max() <= 1
    assert abs(factors.mean() - 5 / 6) < 4 * (0.25 / COUNT) ** 0.5


@given(trusted=st.integers(1, 6), noisy=st.integers(1, 6), views=st.integers(1, 3), seed=st.integers(0, 99))
def test_mixup_keeps_label_mass_and_lies_between_its_partners(trusted, noisy, views, seed):
    """Inputs and targets that are the same numbers stay the same numbers, and each target still sums to 1."""
    generator = torch.Generator().manual_seed(seed)
    trusted_targets = torch.rand(trusted, 3, generator=generator).softmax(1)
    noisy_targets = torch.rand(noisy, 3, generator=generator).softmax(1)
    joint = joint_batch(trusted_targets, trusted_targets, [noisy_targets] * views, noisy_targets, "beta", generator)
    assert joint.part_sizes == (trusted, *[noisy] * views)
    assert len(joint.inputs) == trusted + views * noisy
    torch.testing.assert_close(joint.inputs, joint.targets)
    torch.testing.assert_close(joint.targets.sum(dim=1), torch.ones(len(joint.targets)))


def test_part_sizes_name_the_partner_that_leads():
    """With β >= 1/2 the first partner keeps at least half: trusted parts stay near 1, noisy parts near 0."""
    trusted, noisy = torch.ones(4, 1), torch.zeros(6, 1)
    joint = joint_batch(trusted, trusted, [noisy, noisy], noisy, "approximate", torch.Generator().manual_seed(0))
    parts = joint.inputs.split(list(joint.part_sizes))
    assert (parts[0] >= 0.5).all()
    assert all((part <= 0.5).all() for part in parts[1:])


def test_threshold_splits_strictly_below():
    given, pseudo = torch.eye(3), torch.full((3, 3), 1 / 3)
    weights = torch.tensor([0.2, 0.5, 0.8])
    found = split_targets(given, pseudo, weights, threshold=0.5)
    assert torch.equal(found[0], pseudo[0])
    assert torch.equal(found[1:], given[1:])
    assert torch.equal(split_targets(given, pseudo, weights, threshold=None), pseudo)
