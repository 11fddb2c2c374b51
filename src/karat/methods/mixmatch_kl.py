"""MixMatch-KL, the paper's semi-supervised extension: Algorithm 1 without its meta step and the given labels."""

import torch

from karat.algorithm.joint_batch import joint_batch
from karat.algorithm.losses import mixed_losses
from karat.algorithm.pseudo_labels import kl_consistency, pseudo_labels
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import one_hot
from karat.methods.step import Batch, Learner, StepResult


def mixmatch_kl(learner: Learner, batch: Batch, settings: AlgorithmSettings, generator: torch.Generator) -> StepResult:
    """Descend `L_β^p + p·L_β^u + k·L_KL` with pseudo labels for all noisy examples; the given labels are not used."""
    weak = learner.augmentation.weak(batch.noisy_inputs, generator)
    views = [weak, *[learner.augmentation.strong(weak, generator) for _ in range(settings.views - 1)]]
    trusted_inputs = learner.augmentation.weak(batch.trusted_inputs, generator)

    logits = [learner.network(view) for view in views]
    pseudo = pseudo_labels(logits, settings).detach()
    trusted = one_hot(batch.trusted_labels, learner.classes, like=pseudo)
    joint = joint_batch(trusted_inputs, trusted, views, pseudo, settings.mixup, generator)
    mixed_trusted, mixed_noisy = mixed_losses(
        learner.network(joint.inputs), joint.targets, joint.part_sizes, settings.normalize_logits
    )
    consistency = kl_consistency(logits[0], logits[1:], settings.consistency_gradient)
    loss = mixed_trusted + settings.mixed_noisy_weight * mixed_noisy + settings.consistency_weight * consistency
    learner.update(loss)
    losses = {"total": loss, "mixed_trusted": mixed_trusted, "mixed_noisy": mixed_noisy, "consistency": consistency}
    return StepResult(
        {name: value.detach() for name, value in losses.items()}, logits[0].detach(), pseudo_labels=pseudo
    )
