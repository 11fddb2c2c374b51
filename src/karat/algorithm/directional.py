"""How the logits move when the parameters do: the one derivative that the meta step needs.

Each variant has the signature `(network, forward, parameters, direction) -> ż` with
`ż = (∂z/∂Θ)·direction`, the change of the logits of `forward` along `direction`. `DERIVATIVES` names them.
"""

import logging
import warnings
import weakref
from collections.abc import Callable
from functools import cache

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from karat.algorithm.fast_tangents import FastTangents
from karat.algorithm.network import ForwardPass, Network, Parameters
from karat.errors import choose

Derivative = Callable[[Network, ForwardPass, Parameters, Parameters], Tensor]

logger = logging.getLogger("karat")


def jvp(network: Network, forward: ForwardPass, parameters: Parameters, direction: Parameters) -> Tensor:
    """Return ż by one forward-mode Jacobian-vector product: exact, and no graph is built.

    `parameters` are those of the forward pass, whose intermediate results are used again.

    Fused attention has no forward-mode rule, so attention runs in its math kernel here, and only here.
    """
    _load_forward_mode_rules()
    with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        duals = {
            name: forward_ad.make_dual(value.detach(), direction[name])
            for name, value in parameters.items()
            if name in direction
        }
        logits = network.repeat(forward, duals, FastTangents)
        tangent = forward_ad.unpack_dual(logits).tangent
        return torch.zeros_like(forward.logits) if tangent is None else tangent


def finite_difference(network: Network, forward: ForwardPass, parameters: Parameters, direction: Parameters) -> Tensor:
    """Return ż as a central difference: `(z(Θ + h·d) − z(Θ − h·d)) / 2h`.

    `h` moves the parameters by a share of their norm: the square root of the machine precision. A smooth network
    would bear a larger step, but one with ReLUs has kinks, and fewer of them lie within a smaller one (measured
    for shares of 1e-1 to 1e-6 on five kinds of networks: this is the best or near it in float32 and float64).
    """
    length = _norm(direction)
    if length == 0:
        return torch.zeros_like(forward.logits)
    precision = torch.finfo(forward.logits.dtype).eps
    h = precision**0.5 * _norm({name: parameters[name] for name in direction}) / length
    with torch.no_grad():
        ahead = network.repeat(forward, {name: parameters[name] + h * d for name, d in direction.items()})
        behind = network.repeat(forward, {name: parameters[name] - h * d for name, d in direction.items()})
    return (ahead - behind) / (2 * h)


_without_forward_mode: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def auto(network: Network, forward: ForwardPass, parameters: Parameters, direction: Parameters) -> Tensor:
    """Return ż by `jvp`, or by `finite_difference` for a model with an operator that has no such rule.

    Says so once for each model, in the log.
    """
    if network.module not in _without_forward_mode:
        try:
            return jvp(network, forward, parameters, direction)
        except NotImplementedError as missing:
            _without_forward_mode.add(network.module)
            logger.warning(
                "%s has an operator without a forward-mode derivative (%s); "
                "its data coefficients come from finite differences instead.",
                type(network.module).__name__,
                str(missing).splitlines()[0],
            )
    return finite_difference(network, forward, parameters, direction)


DERIVATIVES: dict[str, Derivative] = {"auto": auto, "jvp": jvp, "finite_difference": finite_difference}


def derivative_named(name: str) -> Derivative:
    """Look a variant up by its name."""
    _load_forward_mode_rules()
    return choose("derivative", name, DERIVATIVES)


@cache
def _load_forward_mode_rules() -> None:
    """Make a first dual number: torch loads its rules then and warns of its own use of torch.jit.script."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # nothing that a user could mend
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(()), torch.zeros(()))


def _norm(tensors: Parameters) -> float:
    return float(torch.linalg.vector_norm(torch.stack([t.detach().norm() for t in tensors.values()])))
