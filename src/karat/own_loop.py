"""The data coefficients for people with a training loop of their own: any module, any optimizer, two batches."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from karat.algorithm import coefficients
from karat.algorithm.coefficients import DataCoefficients
from karat.algorithm.network import Network
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import one_hot
from karat.errors import UserError

Labelled = tuple[Tensor, Tensor]  # inputs, labels

# λ0 = 1: a weight is that of the example with its given label, as a loop that only weighs its losses needs it.
GIVEN_LABELS = AlgorithmSettings(initial_label_trust=1.0)


def data_coefficients(
    model: nn.Module,
    optimizer: Optimizer,
    noisy_batch: Labelled,
    trusted_batch: Labelled,
    *,
    strong_views: Sequence[Tensor] = (),
    pseudo_labels: Tensor | None = None,
    logits_of: Callable[[Any], Tensor] | None = None,
    settings: AlgorithmSettings = GIVEN_LABELS,
) -> DataCoefficients:
    """Say how much each noisy example would help the trusted batch if the optimizer's next step learned from it.

    With Θ' the parameters after a step on the noisy batch, v = ∇L(trusted; Θ') and ż the change of the logits z along
    v as the optimizer would scale it,

        weights     ω*_i = max(0, (softmax(z_i) − y_i)·ż_i), divided by their sum
        label_trust λ*_i = 1 where −(y_i − g_i)·ż_i > 0: the given label y helps more than the pseudo label g; else 0

    A batch is a pair of inputs and labels; labels are class numbers or, row by row, probabilities. Pseudo labels are
    yours (probabilities), or else the sharpened mean prediction over the noisy inputs and their strong views.
    `logits_of` reads the logits from what the model returns. `settings` with `initial_label_trust` λ0 below 1 weighs
    examples with the label λ0·y + (1−λ0)·g.

    The model computes in the mode in which it is. Model, buffers, gradients, optimizer and random state stay as they
    are.

    >>> model = nn.Linear(1, 2, bias=False)
    >>> _ = nn.init.zeros_(model.weight)
    >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x = torch.tensor([[1.0], [1.0], [-1.0]])
    >>> trusted = torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0])
    >>> data_coefficients(model, sgd, (x, torch.tensor([1, 0, 0])), trusted).weights  # the second label is wrong
    tensor([0.5000, 0.0000, 0.5000])
    """
    network = Network(model) if logits_of is None else Network(model, logits_of)
    _check_optimizer(network, optimizer)
    inputs, labels = noisy_batch
    trusted_inputs, trusted_labels = trusted_batch
    with torch.enable_grad():
        views = [network.traceless_pass(view, settings.meta_layers) for view in (inputs, *strong_views)]
        logits = views[0].logits
        if logits.dim() != 2:
            raise UserError(
                f"The model returned logits of shape {tuple(logits.shape)}: they must be (examples, classes); "
                "give logits_of, a function that reads them from the model's output."
            )
        return coefficients.meta_coefficients(
            network,
            optimizer,
            views,
            _targets("noisy", labels, inputs, logits),
            trusted_inputs,
            _targets("trusted", trusted_labels, trusted_inputs, logits),
            settings,
            None if pseudo_labels is None else _targets("pseudo", pseudo_labels.detach(), inputs, logits),
        )


def _check_optimizer(network: Network, optimizer: Optimizer) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not any(id(parameter) in held for parameter in network.trainable().values()):
        raise UserError(
            "The optimizer holds no trainable parameter of the model: make it from model.parameters(), "
            "after the model is on its device."
        )


def _targets(kind: str, labels: Tensor, inputs: Tensor, logits: Tensor) -> Tensor:
    """Return labels as rows of probabilities, checked against the logits."""
    classes = logits.shape[1]
    if len(labels) != len(inputs) or labels.dim() not in (1, 2) or (labels.dim() == 2 and labels.shape[1] != classes):
        raise UserError(
            f"The {kind} labels have shape {tuple(labels.shape)} for {len(inputs)} inputs and {classes} classes: "
            f"give {len(inputs)} class numbers, or a row of {classes} probabilities for each."
        )
    if labels.dim() == 2:
        return labels.to(logits)
    if labels.is_floating_point() or (len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes):
        raise UserError(
            f"The {kind} labels are not class numbers: give integers from 0 to {classes - 1}, "
            "as many as the model has logits."
        )
    return one_hot(labels.long(), classes, like=logits)
