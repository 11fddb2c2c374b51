"""Bootstrapping (Reed et al. 2015): the network's own prediction is a part of the target."""

import torch
from torch import Tensor

from karat.algorithm.pseudo_labels import log_probability
from karat.algorithm.targets import blended_labels, cross_entropy, one_hot
from karat.methods.settings import BootstrapSettings
from karat.methods.step import Batch, Learner, StepResult


def bootstrap_soft(
    learner: Learner, batch: Batch, settings: BootstrapSettings, generator: torch.Generator
) -> StepResult:
    """Descend the cross-entropy of `β·y + (1−β)·softmax(z)`; no trusted examples.

    The gradient flows through the target, too: that makes it cross-entropy with a penalty on the predictions' entropy.
    """
    logits = learner.network(learner.noisy_view(batch, generator))
    return _descend(learner, batch, logits, log_probability(logits).exp(), settings)


def bootstrap_hard(
    learner: Learner, batch: Batch, settings: BootstrapSettings, generator: torch.Generator
) -> StepResult:
    """Descend the cross-entropy of `β·y + (1−β)·onehot(argmax z)`; no trusted examples."""
    logits = learner.network(learner.noisy_view(batch, generator))
    return _descend(learner, batch, logits, one_hot(logits.argmax(dim=1), learner.classes, like=logits), settings)


def _descend(
    learner: Learner, batch: Batch, logits: Tensor, prediction: Tensor, settings: BootstrapSettings
) -> StepResult:
    given = one_hot(batch.given_labels, learner.classes, like=logits)
    targets = blended_labels(given, prediction, settings.label_trust)
    loss = cross_entropy(targets, log_probability(logits)).mean()
    learner.update(loss)
    return StepResult({"loss": loss.detach()}, logits.detach())
