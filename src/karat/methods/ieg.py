"""The paper's method, Algorithm 1: meta re-weighting and re-labeling, pseudo labels, consistency, mixup."""

import torch

from karat.algorithm.coefficients import meta_coefficients
from karat.algorithm.joint_batch import joint_batch, split_targets
from karat.algorithm.losses import coefficient_losses, mixed_loss, mixed_losses, views_loss
from karat.algorithm.pseudo_labels import pseudo_labels
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import one_hot
from karat.methods.step import Batch, Learner, StepResult


def ieg(learner: Learner, batch: Batch, settings: AlgorithmSettings, generator: torch.Generator) -> StepResult:
    """Take one step of Algorithm 1; the comments are its line numbers."""
    network, augmentation = learner.network, learner.augmentation

    # 1: views of the noisy batch, the weak one first
    weak = learner.noisy_view(batch, generator)
    views = [weak, *[augmentation.strong(weak, generator) for _ in range(settings.views - 1)]]
    trusted_inputs = augmentation.weak(batch.trusted_inputs, generator)

    # 2: pseudo labels
    passes = [network.forward_pass(view, settings.meta_layers) for view in views]
    logits = [forward.logits for forward in passes]
    pseudo = pseudo_labels(logits, settings.temperature, settings.normalize_logits, settings.pseudo_label_gradient)
    given = one_hot(batch.given_labels, learner.classes, like=pseudo)
    trusted = one_hot(batch.trusted_labels, learner.classes, like=pseudo)

    # 3: data coefficients
    coefficients = meta_coefficients(network, learner.optimizer, passes, given, trusted_inputs, trusted, settings)

    # 4, 5: split by weight, join with the trusted batch, mix
    targets = split_targets(given, pseudo.detach(), coefficients.weights, settings.threshold)
    joint = joint_batch(trusted_inputs, trusted, views, targets, settings.mixup, generator)

    # 6, 7: one step down the total loss; the views' part is done with before the joint batch takes memory
    with learner.one_step() as go_back:
        of_views = views_loss(
            coefficient_losses(logits[0], given, pseudo, coefficients, settings.initial_label_trust), logits, settings
        )
        go_back(of_views.total)
        mixed = mixed_losses(network(joint.inputs), joint.targets, joint.part_sizes, settings.normalize_logits)
        of_joint = mixed_loss(mixed, settings)
        go_back(of_joint.total)

    losses = {**of_views._asdict(), **of_joint._asdict(), "total": of_views.total + of_joint.total}
    return StepResult(
        {name: value.detach() for name, value in losses.items()},
        logits[0].detach(),
        weights=coefficients.weights,
        label_trust=coefficients.label_trust,
        pseudo_labels=pseudo.detach(),
        class_scores=coefficients.class_scores,
    )
