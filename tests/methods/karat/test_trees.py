"""Boosted trees: as tensors they say what scikit-learn's say, and each row is judged by trees that have not seen it."""

import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

from karat.files.weights import load_weights, save_weights, stored_tensors
from karat.methods.karat.constants import TreeConstants, VerdictConstants
from karat.methods.karat.folds import Labels, View, deal
from karat.methods.karat.trees import as_tensors, grow_trees
from karat.methods.shared.forest import WithTrees, with_trees_of
from karat.noise_matrix import symmetric_transition, without_noise


def rows(classes, count=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=generator)
    return inputs, (inputs[:, :2].sum(dim=1) * 2).long().abs() % classes


def grown(classes=3, constants=None, seed=0):
    inputs, labels = rows(classes)
    known = Labels(labels[30:], labels[:30], classes)
    folds = deal(known, torch.Generator().manual_seed(seed), VerdictConstants())
    view = View(inputs[30:], inputs[:30])
    return grow_trees(view, known, folds, constants or TreeConstants(stages=(4, 8))), inputs, known, folds


@pytest.mark.parametrize("classes", [2, 3])
def test_tensors_say_what_the_trees_say(classes):
    inputs, labels = rows(classes)
    models = [
        HistGradientBoostingClassifier(max_iter=7).fit(inputs[i::2].numpy(), labels[i::2].numpy()) for i in (0, 1)
    ]
    forest = as_tensors(models, [0.25, 0.75], 7, classes)
    expected = sum(
        w * torch.from_numpy(m.predict_proba(inputs.numpy())) for w, m in zip((0.25, 0.75), models, strict=True)
    )
    torch.testing.assert_close(forest.predict(inputs), expected.float(), rtol=0, atol=1e-6)


def test_a_class_that_trees_have_not_seen_is_not_predicted():
    inputs, labels = rows(3)
    known = labels != 1
    model = HistGradientBoostingClassifier(max_iter=3).fit(inputs[known].numpy(), labels[known].numpy())
    assert as_tensors([model], [1.0], 3, classes=3).predict(inputs)[:, 1].max() < 1e-9


def test_a_label_has_no_part_in_its_own_prediction():
    before, inputs, known, folds = grown(constants=TreeConstants(stages=(4,)))
    given = known.given.clone()
    given[7] = (given[7] + 1) % 3
    after = grow_trees(View(inputs[30:], inputs[:30]), known._replace(given=given), folds, TreeConstants(stages=(4,)))
    same = folds.noisy == folds.noisy[7]
    torch.testing.assert_close(before.noisy[same], after.noisy[same], rtol=0, atol=0)
    assert not torch.equal(before.noisy[~same], after.noisy[~same])


def test_trees_stop_where_unseen_labels_become_less_likely():
    """Of labels that are drawn there is nothing to learn: the fewest trees are the best."""
    inputs, _ = rows(3)
    drawn = Labels(torch.randint(3, (270,), generator=torch.Generator().manual_seed(1)), torch.arange(30) % 3, 3)
    folds = deal(drawn, torch.Generator().manual_seed(0), VerdictConstants())
    found = grow_trees(View(inputs[30:], inputs[:30]), drawn, folds, TreeConstants(stages=(1, 20, 40, 80)))
    assert found.forest.value.shape[1] == 1


def test_too_few_rows_grow_none():
    assert grown(constants=TreeConstants(fewest=1_000))[0] is None


def test_a_network_with_trees_is_saved_and_loaded_without_knowing_them(tmp_path):
    found, inputs, _, _ = grown()
    transition, shares = symmetric_transition(3, 0.2).float(), torch.tensor([0.5, 0.3, 0.2])
    network = nn.Linear(4, 3)
    model = WithTrees(network, found.forest, transition, shares, torch.tensor(0.25))
    by_trees = without_noise(found.forest.predict(inputs), transition, shares).log()
    torch.testing.assert_close(model(inputs), 0.75 * network(inputs).log_softmax(dim=1) + 0.25 * by_trees)
    save_weights(tmp_path / "model.safetensors", model)
    loaded = with_trees_of(stored_tensors(tmp_path / "model.safetensors"), nn.Linear(4, 3))
    load_weights(tmp_path / "model.safetensors", loaded)
    torch.testing.assert_close(loaded(inputs), model(inputs), rtol=0, atol=0)
    assert with_trees_of(network.state_dict(), network) is network
