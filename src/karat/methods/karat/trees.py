"""Boosted trees that predict the given labels of short vectors, each by trees that have not seen it.

They bend where linear heads cannot. Trees stop growing where unseen labels become less likely: with wrong labels that
is soon. What they say of the true class comes out when the noise is taken off (`noise_matrix.without_noise`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from karat.methods.karat.constants import TreeConstants
from karat.methods.karat.folds import Folds, Labels, View
from karat.methods.shared.forest import Forest

LEAST = 1e-4  # probability of a class that trees exclude


class Grown(NamedTuple):
    """The given label's probabilities by trees that have not seen it, and trees for new rows."""

    noisy: Tensor
    trusted: Tensor
    forest: Forest


def grow_trees(vectors: View, labels: Labels, folds: Folds, constants: TreeConstants) -> Grown | None:
    """Grow trees on all parts but one, for each part, and on all of them; None where there is too little to grow on."""
    outside = [(folds.noisy != part) & (folds.noisy >= 0) for part in range(folds.parts)]
    if len(labels.given) < constants.fewest or any(len(labels.given[used].unique()) < 2 for used in outside):
        return None
    noisy, trusted = (torch.zeros(len(constants.stages), len(part), labels.classes) for part in vectors)
    models, stages = [], constants.stages
    for part, used in enumerate(outside):
        model = _untrained(constants)
        models.append(model)
        likelihoods: list[float] = []
        for place, stage in enumerate(stages):
            model.set_params(max_iter=stage).fit(vectors.noisy[used].numpy(), labels.given[used].numpy())
            for inputs, parts, found in zip(vectors, (folds.noisy, folds.trusted), (noisy, trusted), strict=True):
                _add_predictions(found[place], model, inputs, parts, part, folds.parts)
            likelihoods.append(_likelihood(noisy[place], labels.given, folds.noisy == part))
            if part == 0 and place - int(np.argmax(likelihoods)) == 2:  # it tells how far the others need to grow
                stages = stages[: place + 1]
                break
    used = folds.noisy >= 0
    best = int(np.argmax([_likelihood(noisy[place], labels.given, used) for place in range(len(stages))]))
    model = _untrained(constants).set_params(max_iter=stages[best], max_leaf_nodes=constants.leaves_of_all)
    models.append(model.fit(vectors.noisy[used].numpy(), labels.given[used].numpy()))
    votes = [0.5 / folds.parts] * folds.parts + [0.5]  # the trees of all rows know more, those of parts are steadier
    return Grown(
        noisy[best].clamp(min=LEAST),
        trusted[best].clamp(min=LEAST),
        as_tensors(models, votes, stages[best], labels.classes),
    )


def _untrained(constants: TreeConstants) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(
        max_leaf_nodes=constants.leaves,
        l2_regularization=constants.strength,
        early_stopping=False,
        warm_start=True,
        random_state=0,
    )


def _add_predictions(
    found: Tensor, model: HistGradientBoostingClassifier, inputs: Tensor, parts: Tensor, part: int, count: int
) -> None:
    """Add what the model says of the rows of its part, in place; those of no part ask all models."""
    rows = ((parts == part) | (parts < 0)).nonzero().flatten()
    if len(rows):
        share = torch.where(parts[rows] < 0, 1 / count, 1.0)[:, None]
        p = torch.from_numpy(model.predict_proba(inputs[rows].numpy())).float()
        found[rows[:, None], torch.from_numpy(model.classes_)] += share * p


def _likelihood(predicted: Tensor, given: Tensor, rows: Tensor) -> float:
    """Return the log-likelihood of these rows' labels."""
    return predicted[rows].gather(1, given[rows][:, None]).clamp(min=1e-6).log().sum().item()


def as_tensors(
    models: Sequence[HistGradientBoostingClassifier], votes: Sequence[float], stages: int, classes: int
) -> Forest:
    """Return the first stages of the models as tensors.

    scikit-learn has no public view of these trees; converters to other formats read the same fields.
    """
    trees = [model._predictors[:stages] for model in models]
    most = max(len(tree.nodes) for model in trees for stage in model for tree in stage)
    shape = (len(models), stages, classes, most)
    feature, left, right = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    left[:], right[:] = np.arange(most), np.arange(most)  # what is no tree is a leaf of value 0
    threshold, value = np.zeros(shape), np.zeros(shape)
    baseline = np.full(shape[::2], -30.0)  # of a class that a model has not seen
    for place, model in enumerate(models):
        known = model.classes_[1:] if len(model.classes_) == 2 else model.classes_  # two classes share one tree
        baseline[place, model.classes_] = 0.0
        baseline[place, known] = model._baseline_prediction.flatten()
        for stage, of_classes in enumerate(trees[place]):
            for label, tree in zip(known, of_classes, strict=True):
                at, nodes = (place, stage, label, slice(len(tree.nodes))), tree.nodes
                is_leaf = nodes["is_leaf"].astype(bool)
                feature[at], threshold[at] = nodes["feature_idx"], nodes["num_threshold"]
                left[at] = np.where(is_leaf, left[at], nodes["left"])
                right[at] = np.where(is_leaf, right[at], nodes["right"])
                value[at] = np.where(is_leaf, nodes["value"], 0.0)
    arrays = (feature, threshold, left, right, value, baseline, np.array(votes))
    return Forest(*(torch.from_numpy(array) for array in arrays))
