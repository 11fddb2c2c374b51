"""MixMatch-KL, the paper's semi-supervised extension: Algorithm 1 without its meta step and the given labels."""

import torch

from karat.algorithm.joint_batch import joint_batch
from karat.algorithm.losses import mixed_losses
from karat.algorithm.pseudo_labels import kl_consistency, pseudo_labels
from karat.algorithm.targets import one_hot
from karat.methods.settings import MixMatchKlSettings
from karat.methods.shared.warm_up import ramp
from karat.methods.step import Batch, Learner, StepResult

RAMP = 0.4  # share of the run, as in `mixmatch`


def mixmatch_kl(learner: Learner, batch: Batch, settings: MixMatchKlSettings, generator: torch.Generator) -> StepResult:
    """Descend `L_β^p + p·L_β^u + k·L_KL` with pseudo labels for all noisy examples; the given labels are not used.

    Unlike in Algorithm 1, p and k rise linearly over the first part of the run, the views pass the network together
    with the mixed examples, and the KL moves the strong views alone: nothing else holds the weak ones here, and with
    gradients through both sides all predictions became one class (digits, 8 epochs, one seed: 12.7%, else 78.1%).
    """
    weak = learner.noisy_view(batch, generator)
    views = [weak, *[learner.augmentation.strong(weak, generator) for _ in range(settings.views - 1)]]
    trusted_inputs = learner.augmentation.weak(batch.trusted_inputs, generator)

    with torch.no_grad():
        guesses = [learner.network(view) for view in views]
    pseudo = pseudo_labels(guesses, settings.temperature, settings.normalize_logits)
    trusted = one_hot(batch.trusted_labels, learner.classes, like=pseudo)
    joint = joint_batch(trusted_inputs, trusted, views, pseudo, settings.mixup, generator)
    logits = learner.network(torch.cat([joint.inputs, *views]))
    mixed, unmixed = logits[: len(joint.inputs)], logits[len(joint.inputs) :].split(len(weak))
    mixed_trusted, mixed_noisy = mixed_losses(mixed, joint.targets, joint.part_sizes, settings.normalize_logits)
    consistency = kl_consistency(unmixed[0], unmixed[1:], "augmented")
    weighted = settings.mixed_noisy_weight * mixed_noisy + settings.consistency_weight * consistency
    loss = mixed_trusted + ramp(batch.progress, 0.0, RAMP) * weighted
    learner.update(loss)
    losses = {"total": loss, "mixed_trusted": mixed_trusted, "mixed_noisy": mixed_noisy, "consistency": consistency}
    return StepResult({name: value.detach() for name, value in losses.items()}, guesses[0], pseudo_labels=pseudo)
