"""Line 3 of Algorithm 1: weights ω* and label trust λ* (eq. 5-7), exact, without a second-order graph.

With the look-ahead `Θ' = Θ − S(g)`, `g = Σ_i ω_i ∇ℓ_i`, `ℓ_i = L(P(λ_i), z_i)` and `v = ∇L^p(Θ')`, the chain
rule gives, for the direction `u = (∂S/∂g)ᵀ v` (`LookAhead.pullback`),

    −∂L^p/∂ω_i = u·∇ℓ_i         = d/dε ℓ_i(Θ + ε·u)
    −∂L^p/∂λ_i = ω0·u·∇∂ℓ_i/∂λ_i = ω0 · d/dε ∂ℓ_i/∂λ_i (Θ + ε·u)

Both are derivatives of functions of the logits along ż = (∂z/∂Θ)·u, which is ONE Jacobian-vector product. Where
no gradient flows through the pseudo labels they are `(softmax(z_i) − P(λ0)_i)·ż_i` and `−ω0·(y_i − g_i)·ż_i`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from karat.algorithm.directional import Derivative, derivative_named
from karat.algorithm.look_ahead import look_ahead, weight_decay_of
from karat.algorithm.network import ForwardPass, Network, Parameters, preserving_random_state
from karat.algorithm.pseudo_labels import log_probability, pseudo_labels
from karat.algorithm.settings import AlgorithmSettings
from karat.algorithm.targets import blended_labels, cross_entropy


class DataCoefficients(NamedTuple):
    """What the trusted batch says about each noisy example."""

    weights: Tensor
    """ω*: not negative; they sum to 1, or are all 0 if no example helps."""
    label_trust: Tensor
    """λ*: 1 where the given label helps the trusted loss more than the pseudo label, else 0."""
    class_scores: Tensor
    """−ż: how much each class as the label of an example would help the trusted loss; only order matters."""


class MetaGradient(NamedTuple):
    """How much the trusted loss falls with more weight on an example, and with more trust in its label."""

    weights: Tensor
    """−∂L^p/∂ω"""
    label_trust: Tensor
    """−∂L^p/∂λ"""
    logits: Tensor
    """ż"""


def meta_coefficients(
    network: Network,
    optimizer: Optimizer,
    views: Sequence[ForwardPass],
    given: Tensor,
    trusted_inputs: Tensor,
    trusted_targets: Tensor,
    settings: AlgorithmSettings,
    pseudo: Tensor | None = None,
) -> DataCoefficients:
    """Return ω* and λ* of a noisy batch from its forward passes (weak view first) and a trusted batch.

    `pseudo` are pseudo labels from elsewhere, instead of those that the views give.
    Model, buffers, optimizer and random state stay untouched; the graphs of the forward passes stay usable.
    """
    gradient = meta_gradient(network, optimizer, views, given, trusted_inputs, trusted_targets, settings, pseudo)
    start = 1 / len(given) if settings.weights_start == "initial" else 0.0
    return DataCoefficients(
        normalized_weights(start + gradient.weights, settings.weights_epsilon),
        (gradient.label_trust > 0).to(given),
        -gradient.logits,
    )


def meta_gradient(
    network: Network,
    optimizer: Optimizer,
    views: Sequence[ForwardPass],
    given: Tensor,
    trusted_inputs: Tensor,
    trusted_targets: Tensor,
    settings: AlgorithmSettings,
    pseudo: Tensor | None = None,
) -> MetaGradient:
    """Return −∂L^p/∂ω and −∂L^p/∂λ at ω0 = 1/B and λ0; Θ are the parameters that the views' passes let move."""
    parameters = network.moved_by(views[0])
    losses, _ = _losses_and_trust_slopes([view.logits for view in views], given, settings, pseudo)
    own = torch.autograd.grad(losses.mean(), list(parameters.values()), retain_graph=True, allow_unused=True)
    gradients = network.add_up(own)
    ahead = look_ahead(optimizer, parameters, dict(zip(parameters, gradients, strict=True)), settings.look_ahead_rate)
    decay = weight_decay_of(optimizer, parameters) if settings.trusted_weight_decay else {}
    slope = trusted_gradient(network, ahead.parameters, trusted_inputs, trusted_targets, decay)
    direction = ahead.pullback(slope)

    derivative = derivative_named(settings.derivative)
    if pseudo is not None or not settings.pseudo_label_gradient:
        # The closed form: the same numbers as below, in a quarter less time for a step of a small network.
        logits, slope_of_logits = views[0].logits.detach(), derivative(network, views[0], parameters, direction)
        if pseudo is None:
            pseudo = _pseudo_labels([view.logits.detach() for view in views], settings)
        residual = logits.softmax(dim=1) - blended_labels(given, pseudo, settings.initial_label_trust)
        weight_gain = (residual * slope_of_logits).sum(dim=1)
        trust_gain = ((pseudo - given) * slope_of_logits).sum(dim=1)
        return MetaGradient(weight_gain, trust_gain / len(given), slope_of_logits)
    logits_slopes = [derivative(network, view, parameters, direction) for view in views]
    with torch.no_grad():
        slopes: tuple[Tensor, Tensor] = torch.func.jvp(
            lambda *logits: _losses_and_trust_slopes(logits, given, settings),
            tuple(view.logits.detach() for view in views),
            tuple(logits_slopes),
        )[1]
    weight_gain, trust_gain = slopes
    return MetaGradient(weight_gain, trust_gain / len(given), logits_slopes[0])


def influence_on_trusted(
    network: Network,
    forward: ForwardPass,
    given: Tensor,
    trusted_inputs: Tensor,
    trusted_targets: Tensor,
    derivative: Derivative,
) -> Tensor:
    """Return −∂L^p/∂ω at ω0 = 0, where the look-ahead is the model itself (L2R): no look-ahead gradient."""
    parameters = network.moved_by(forward)
    slope = trusted_gradient(network, parameters, trusted_inputs, trusted_targets)
    logits_slope = derivative(network, forward, parameters, slope)
    residual = torch.softmax(forward.logits.detach(), dim=1) - given
    return (residual * logits_slope).sum(dim=1)


def trusted_gradient(
    network: Network,
    parameters: Parameters,
    inputs: Tensor,
    targets: Tensor,
    weight_decay: dict[str, float] | None = None,
) -> Parameters:
    """Return v = ∇L^p: the gradient of the mean trusted loss (and of weight decay) at some parameters.

    Trainable parameters that are not among them are constants: no gradient goes back as far as that.
    """
    fixed = {name: p.detach() for name, p in network.trainable().items() if name not in parameters}
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    with preserving_random_state(inputs.device), torch.enable_grad():
        loss = cross_entropy(targets, log_probability(network.at({**fixed, **leaves}, inputs))).mean()
        slopes = network.add_up(torch.autograd.grad(loss, list(leaves.values()), allow_unused=True))
    gradient = {
        name: torch.zeros_like(parameters[name]) if slope is None else slope
        for name, slope in zip(leaves, slopes, strict=True)
    }
    for name, decay in (weight_decay or {}).items():
        gradient[name] = gradient[name] + decay * parameters[name]
    return gradient


def normalized_weights(gains: Tensor, epsilon: float = 0.0) -> Tensor:
    """Clip at 0 and divide by the sum; all weights are 0 where no example helps.

    >>> normalized_weights(torch.tensor([3.0, -1.0, 1.0]))
    tensor([0.7500, 0.0000, 0.2500])
    """
    clipped = gains.clamp(min=0)
    total = clipped.sum() + epsilon
    return torch.where(total == 0, clipped, clipped / total)  # NaN stays NaN: the trainer stops there


def _pseudo_labels(logits: Sequence[Tensor], settings: AlgorithmSettings) -> Tensor:
    return pseudo_labels(logits, settings.temperature, settings.normalize_logits, settings.pseudo_label_gradient)


def _losses_and_trust_slopes(
    logits: Sequence[Tensor], given: Tensor, settings: AlgorithmSettings, pseudo: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return ℓ_i = L(P(λ0), z_i) and ∂ℓ_i/∂λ_i = L(y_i, z_i) − L(g_i, z_i) of each example."""
    pseudo = _pseudo_labels(logits, settings) if pseudo is None else pseudo
    log_probabilities = log_probability(logits[0])
    blended = blended_labels(given, pseudo, settings.initial_label_trust)
    return (
        cross_entropy(blended, log_probabilities),
        cross_entropy(given - pseudo, log_probabilities),
    )
