"""MentorNet: its step by an independent formula, what the mentor learns, memory."""

import copy
from dataclasses import replace

import pytest
import torch
from harness import CLASSES, batch, learner, network, task
from torch import nn

from karat.errors import UserError
from karat.methods.mentornet import MentorNet, MentorNetSettings, other_labels
from karat.methods.step import Progress

LATE = Progress(3, 4, 1)


def test_other_labels_are_all_others_equally_often():
    """Of 3,000 draws each of the 3 other classes has 1,000 in expectation, with a standard deviation of 26."""
    labels = torch.arange(CLASSES).repeat_interleave(3000)
    drawn = other_labels(labels, CLASSES, torch.Generator().manual_seed(0))
    counts = torch.stack([drawn[labels == c].bincount(minlength=CLASSES) for c in range(CLASSES)])
    assert (counts.diagonal() == 0).all()
    assert (counts[~torch.eye(CLASSES, dtype=torch.bool)] - 1000).abs().max() < 130


def test_all_count_fully_during_the_burn_in():
    """The step is then that of plain training: the trusted pass moves no weight and no statistic of BatchNorm."""
    module = network()
    bare = copy.deepcopy(module)
    method, settings = MentorNet(task(), MentorNetSettings()), MentorNetSettings(burn_in=0.8)
    result = method.step(learner(module), batch(progress=LATE), settings, torch.Generator())
    nn.functional.cross_entropy(bare(batch().noisy_inputs), batch().given_labels).backward()
    learner(bare).optimizer.step()
    torch.testing.assert_close(module.state_dict(), bare.state_dict())
    torch.testing.assert_close(result.weights, torch.full((10,), 0.1, dtype=torch.float64))


def test_the_step_is_weighted_by_the_mentor():
    """Loss mean(v·L) with v = sigmoid(mentor(L, L − moving percentile, share, label)).

    The moving percentile starts at that of the first batch: L_(0.75), linearly between the sorted losses.
    """
    module = network()
    bare = copy.deepcopy(module)
    settings = MentorNetSettings(burn_in=0.5)
    method = MentorNet(task(), settings)
    mentor = copy.deepcopy(method.mentor.network.module)
    data = batch(progress=LATE)
    result = method.step(learner(module), data, settings, torch.Generator())

    losses = nn.functional.cross_entropy(bare(data.noisy_inputs), data.given_labels, reduction="none")
    seen = losses.detach().float()
    ordered = seen.sort().values
    percentile = ordered[6] + 0.75 * (ordered[7] - ordered[6])  # place 0.75·9 = 6.75
    rows = [
        torch.cat([torch.stack([a, a - percentile, torch.tensor(0.75)]), mentor.label.weight[c]])
        for a, c in zip(seen, data.given_labels, strict=True)
    ]
    weights = mentor.layers(torch.stack(rows)).squeeze(1).sigmoid().detach().double()
    (weights * losses).mean().backward()
    learner(bare).optimizer.step()
    torch.testing.assert_close(result.weights, weights / 10, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(module.state_dict(), bare.state_dict(), rtol=1e-5, atol=1e-7)
    assert method.percentile_loss == pytest.approx(percentile.item(), rel=1e-5)


def test_the_moving_percentile_decays():
    """0.5·2 + 0.5·3 = 2.5 after batches whose losses are all 2 and all 3."""
    method, settings = MentorNet(task(), MentorNetSettings()), MentorNetSettings(percentile_decay=0.5)
    for loss in (2.0, 3.0):
        method._follow(torch.full((4,), loss), settings)
    assert method.percentile_loss == 2.5


def test_the_mentor_learns_to_prefer_right_labels():
    """A student that knows the trusted examples gives right labels small losses: v must fall with the loss."""
    method = MentorNet(task(), MentorNetSettings(rate=0.05))
    labels = batch().trusted_labels
    logits = 4 * nn.functional.one_hot(labels, CLASSES).double()
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        method._teach_mentor(logits, labels, 0.5, generator)
    small, large = (torch.full((CLASSES,), value) for value in (0.05, 4.05))  # −log softmax of the right, a wrong one
    classes = torch.arange(CLASSES)
    assert method.mentor.network(method._observed(small, classes, 0.5)).sigmoid().min() > 0.9
    assert method.mentor.network(method._observed(large, classes, 0.5)).sigmoid().max() < 0.1


def test_memory_survives_a_checkpoint():
    """Two more steps after loading equal two more steps without: mentor, its Adam state and the percentile are kept."""
    settings = MentorNetSettings(burn_in=0.0)
    first, ours = MentorNet(task(), settings), learner(network())
    data = batch(progress=LATE)
    first.step(ours, data, settings, torch.Generator().manual_seed(1))
    second, theirs = MentorNet(task(), settings), learner(network())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    theirs.network.module.load_state_dict(copy.deepcopy(ours.network.module.state_dict()))
    theirs.optimizer.load_state_dict(copy.deepcopy(ours.optimizer.state_dict()))
    for method, student in ((first, ours), (second, theirs)):
        generator = torch.Generator().manual_seed(2)
        for _ in range(2):
            last = method.step(student, data, settings, generator)
        found = method.mentor.network.module.state_dict(), student.network.module.state_dict(), last.weights
        if method is first:
            expected = copy.deepcopy(found)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_two_classes_are_enough():
    data = replace(task(), classes=2, given_labels=task().given_labels % 2)
    method, settings = MentorNet(data, MentorNetSettings(burn_in=0)), MentorNetSettings(burn_in=0)
    module = nn.Linear(6, 2)
    few = batch(progress=LATE)
    few = few._replace(
        noisy_inputs=few.noisy_inputs.float(), given_labels=few.given_labels % 2,
        trusted_inputs=few.trusted_inputs.float(), trusted_labels=few.trusted_labels % 2,
    )  # fmt: skip
    assert method.step(learner(module), few, settings, torch.Generator()).weights.isfinite().all()


@pytest.mark.parametrize("wrong", [{"burn_in": 1.0}, {"percentile": -0.1}, {"percentile_decay": 1.0}, {"rate": 0.0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UserError, match=f"methods.mentornet.{next(iter(wrong))} is"):
        MentorNetSettings(**wrong)
