"""Training on the trusted examples alone."""

import torch
from harness import batch, learner, network, stepped
from torch.nn.functional import cross_entropy

from karat.methods.trusted_only import trusted_only


def test_step_sees_the_trusted_batch_alone():
    """The noisy inputs are not a number: whatever touched them would not be one either."""
    module = network()
    data = batch()._replace(noisy_inputs=torch.full((10, 6), torch.nan, dtype=torch.float64))
    expected = stepped(module, lambda bare: cross_entropy(bare(data.trusted_inputs), data.trusted_labels))
    result = trusted_only(learner(module), data, None, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected, rtol=0, atol=0)
    assert result.logits is None
