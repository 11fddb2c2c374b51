"""Deep self-learning: prototypes by hand, corrected labels of clear clusters, the blended loss, memory."""

import copy

import pytest
import torch
from harness import CLASSES, COUNT, batch, learner, network, task
from torch import nn

from karat.errors import UserError
from karat.methods.self_learning import SelfLearning, SelfLearningSettings, choose_prototypes, corrected_labels
from karat.methods.step import Progress


def test_prototypes_are_dense_and_not_too_similar():
    """Five examples, 25 similarities: 15 of them are at most 0.5, and what is above it counts as near.

    Near are 1 (the diagonal), 0.97 and 0.6: 3, 2, 2, 1 and 1 in the rows. Example 0 is densest, its η is its smallest
    similarity 0.1. Example 1 has η = 0.97 to the denser 0: too similar. The others have η = 0.6, 0.5 and, to the
    denser 0, 1 and 2, 0.1. By density among η < 0.95, equal ones in order: 0, 2, 3, 4; example 1 comes last.
    """
    similarities = torch.tensor(
        [
            [1.00, 0.97, 0.60, 0.50, 0.10],
            [0.97, 1.00, 0.30, 0.20, 0.10],
            [0.60, 0.30, 1.00, 0.30, 0.10],
            [0.50, 0.20, 0.30, 1.00, 0.40],
            [0.10, 0.10, 0.10, 0.40, 1.00],
        ]
    )
    assert choose_prototypes(similarities, 5).tolist() == [0, 2, 3, 4, 1]
    assert choose_prototypes(similarities, 2).tolist() == [0, 2]


def test_labels_of_clear_clusters_are_all_corrected():
    """Four narrow clusters, 30 examples each, 9 of them with the next label: dense examples have the right one."""
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(120) % 4
    centres = 4 * torch.eye(4) + 10  # the 10 makes all raw cosines alike: only centred features tell them apart
    features = centres[true] + 0.3 * torch.randn(120, 4, generator=generator)
    wrong = torch.arange(120) % 40 < 12
    given = torch.where(wrong, (true + 1) % 4, true)
    found = corrected_labels(features, given, 6, SelfLearningSettings(sample=25), generator)
    assert torch.equal(found, true)


def test_step_blends_given_and_corrected_labels():
    """The gradient is that of cross-entropy with the soft target (1−α)·y + α·ŷ, which is linear in the target."""
    module = network()
    bare = copy.deepcopy(module)
    settings = SelfLearningSettings(corrected_weight=0.3)
    method = SelfLearning(task(), settings)
    method.corrected = torch.full((COUNT,), 2)
    result = method.step(learner(module), batch(), settings, torch.Generator())

    target = 0.7 * nn.functional.one_hot(batch().given_labels, CLASSES).double()
    target[:, 2] += 0.3
    loss = nn.functional.cross_entropy(bare(batch().noisy_inputs), target)
    loss.backward()
    learner(bare).optimizer.step()
    torch.testing.assert_close(module.state_dict(), bare.state_dict())
    torch.testing.assert_close(result.losses["loss"], loss.detach())
    assert torch.equal(result.label_trust == 1, batch().given_labels == 2)


def test_labels_are_corrected_after_the_warm_up_and_remembered():
    data, settings, ours = task(), SelfLearningSettings(warm_up=0.5, prototypes=2), learner(network())
    method = SelfLearning(data, settings)
    method.begin_epoch(Progress(1, 4, 1), ours, settings, torch.Generator().manual_seed(0))
    assert torch.equal(method.corrected, data.given_labels)
    method.begin_epoch(Progress(2, 4, 1), ours, settings, torch.Generator().manual_seed(0))
    assert not torch.equal(method.corrected, data.given_labels)  # random features do not follow the labels
    again = SelfLearning(data, settings)
    again.load_state_dict(method.state_dict())
    assert torch.equal(again.corrected, method.corrected)


@pytest.mark.parametrize("wrong", [{"warm_up": -0.1}, {"corrected_weight": 1.5}, {"prototypes": 0}, {"sample": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=f"methods.self_learning.{next(iter(wrong))} is"):
        SelfLearningSettings(**wrong)
