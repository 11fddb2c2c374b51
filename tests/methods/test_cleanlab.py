"""Confident learning: out-of-sample predictions fold by fold, then the kept rows."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from harness import CLASSES, COUNT, batch, learner, network, stepped, task
from torch import nn
from torch.nn.functional import cross_entropy

import karat.methods.cleanlab
from karat.algorithm.network import Network
from karat.errors import UserError
from karat.methods.cleanlab import Cleanlab, CleanlabSettings, issues, random_folds
from karat.methods.step import Learner

SETTINGS = CleanlabSettings()


class Constant(nn.Module):
    """Predicts the same class for every input: its predictions say which network made them."""

    def __init__(self, label):
        super().__init__()
        self.logits = nn.Parameter(torch.eye(CLASSES)[label].clone())

    def forward(self, inputs):
        return self.logits.repeat(len(inputs), 1)


def knows(label):
    module = Constant(label)
    return Learner(Network(module), torch.optim.SGD(module.parameters(), lr=0.1), None, CLASSES)


def test_each_fold_is_predicted_by_the_network_that_did_not_see_it():
    """The network before phase k + 1 was trained on the rows of phase k: it predicts the others, class k here."""
    method, generator = Cleanlab(task(), SETTINGS), torch.Generator().manual_seed(0)
    seen = []
    for number in range(3):
        seen.append(method.begin_phase(number, knows(number - 1), SETTINGS, generator))
    method.begin_phase(3, knows(2), SETTINGS, generator)
    for fold, rows in enumerate(seen):
        unseen = (method.probabilities.argmax(dim=1) == fold).nonzero().squeeze(1)
        assert len(unseen) == COUNT / 3
        assert torch.equal(torch.cat([rows, unseen]).sort().values, torch.arange(COUNT))


def test_folds_hold_every_class_equally():
    """24 examples, 6 of each of 4 classes, 3 folds: 2 of each class in each fold."""
    labels = task().given_labels
    folds = random_folds(labels, 3, torch.Generator().manual_seed(0))
    assert Counter(zip(labels.tolist(), folds.tolist(), strict=True)) == {(c, f): 2 for c in range(4) for f in range(3)}
    assert not torch.equal(folds, random_folds(labels, 3, torch.Generator().manual_seed(1)))


def clear_case():
    """Return 30 examples of 3 classes, predicted rightly at 0.9; the first of each class has the label of the next."""
    true = torch.arange(3).repeat_interleave(10)
    given = true.clone()
    wrong = torch.tensor([0, 10, 20])
    given[wrong] = (true[wrong] + 1) % 3
    probabilities = torch.full((30, 3), 0.05)
    probabilities[torch.arange(30), true] = 0.9
    return given, probabilities, wrong


def test_clear_issues_are_found():
    """The thresholds are mean p(c) over the examples labelled c, (9·0.9 + 0.05)/10 = 0.815, so each 0.9 is counted."""
    given, probabilities, wrong = clear_case()
    assert torch.equal(issues(given, probabilities).nonzero().squeeze(1), wrong)


def test_no_class_is_left_without_an_example():
    """Both examples labelled 0 look like other classes, and without the lower bound both would be dropped."""
    given = torch.tensor([2, 1, 1, 0, 1, 1, 2, 0])
    scores = [[2, 3, 2], [1, 1, 1], [2, 1, 1], [1, 2, 3], [1, 1, 3], [1, 3, 2], [1, 3, 1], [2, 3, 1]]
    cubes = torch.tensor(scores).double() ** 3
    dropped = issues(given, cubes / cubes.sum(dim=1, keepdim=True))
    assert not dropped[[3, 7]].all()


def test_a_class_that_no_label_names_is_no_mistake():
    probabilities = torch.tensor([[0.97, 0.01, 0.02]] * 10 + [[0.01, 0.97, 0.02]] * 10)
    assert not issues(torch.arange(2).repeat_interleave(10), probabilities).any()


def test_last_phase_drops_the_issues():
    """The inputs are the logits and the network is the identity, so the predictions are those of the clear case."""
    given, probabilities, wrong = clear_case()
    everything = replace(task(), given_labels=given, classes=3, noisy_inputs=lambda rows: probabilities[rows].log())
    method, ours = Cleanlab(everything, SETTINGS), Learner(Network(nn.Identity()), None, None, 3)
    for number in range(4):
        kept = method.begin_phase(number, ours, SETTINGS, torch.Generator())
    assert set(kept.tolist()) == set(range(30)) - set(wrong.tolist())


def test_step_is_plain_training():
    module, data = network(), batch()
    expected = stepped(module, lambda bare: cross_entropy(bare(data.noisy_inputs), data.given_labels))
    Cleanlab(task(), SETTINGS).step(learner(module), data, SETTINGS, torch.Generator())
    torch.testing.assert_close(module.state_dict(), expected, rtol=0, atol=0)


def test_folds_and_predictions_survive_a_checkpoint():
    """A run resumed after the first fold drops the same rows as one that went through."""
    method, resumed = (Cleanlab(task(), SETTINGS) for _ in range(2))
    ours = learner(network())
    for number in range(2):
        method.begin_phase(number, ours, SETTINGS, torch.Generator().manual_seed(number))
    resumed.load_state_dict({name: value.clone() for name, value in method.state_dict().items()})
    for number in (2, 3):
        rows, again = (
            one.begin_phase(number, ours, SETTINGS, torch.Generator().manual_seed(7)) for one in (method, resumed)
        )
        assert torch.equal(rows, again)
    assert torch.equal(method.probabilities, resumed.probabilities)


def test_missing_package_is_named_before_training(monkeypatch):
    monkeypatch.setattr(karat.methods.cleanlab, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"karat\[cleanlab\]"):
        Cleanlab(task(), SETTINGS)


@pytest.mark.parametrize("wrong", [{"folds": 1}, {"fold_share": 0.34}, {"fold_share": 0.0}])
def test_illegal_settings_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        CleanlabSettings(**wrong)
