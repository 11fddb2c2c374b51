"""Muon (Jordan et al. 2024): momentum whose matrices are made orthogonal before they are added.

timm has a Muon, too, but it computes in bfloat16, writes into the gradients, and leaves to AdamW what is no matrix: a
look-ahead could neither repeat its step nor differentiate it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the authors: steepest at 0; singular values end between 0.7 and 1.2
ROUNDS = 3
TINY = 1e-7


def orthogonalized(matrix: Tensor, rounds: int = ROUNDS) -> Tensor:
    """Return roughly U·Vᵀ of a matrix U·S·Vᵀ, by a polynomial that brings all singular values near 1.

    `X ← a·X + b·(XXᵀ)X + c·(XXᵀ)²X`, from the matrix divided by its norm; a function that autograd can differentiate.

    >>> [round(s, 1) for s in orthogonalized(torch.diag(torch.tensor([30.0, 2.0, 9.0])), rounds=5).diag().tolist()]
    [0.8, 1.1, 0.9]
    """
    a, b, c = COEFFICIENTS
    x = matrix / (matrix.norm() + TINY)
    wide = x if x.shape[0] <= x.shape[1] else x.T
    for _ in range(rounds):
        square = wide @ wide.T
        wide = a * wide + (b * square + c * square @ square) @ wide
    return wide if x.shape[0] <= x.shape[1] else wide.T


class Muon(Optimizer):
    """Move matrices and convolutions by their orthogonalized momentum, everything else by SGD at rates of its own.

    With d the (Nesterov) momentum `b ← μ·b + g` of the gradient and W flattened to one row an output channel,

        W ← W·(1 − rate·decay) − rate·orthogonalized(d)    in groups with `orthogonal`, where W has two axes or more
        Θ ← Θ − rate·d, with g + decay·Θ for g    else

    The rate is a group's `lr` times its `rate_factor`: schedules set one `lr` for all groups. `differentiable` steps
    can be back-propagated through to the gradients.

    >>> weight = torch.nn.Parameter(torch.eye(2))
    >>> weight.grad = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    >>> Muon([weight], lr=0.1, momentum=0.0, nesterov=False).step()
    >>> round(weight[0, 1].item(), 3)  # 0.1 times what 3 rounds make of the singular value 1
    -0.072
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.1,
        momentum: float = 0.6,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        *,
        orthogonal: bool = True,
        rate_factor: float = 1.0,
        differentiable: bool = False,
    ) -> None:
        if not lr >= 0 or not 0 <= momentum < 1 or not weight_decay >= 0 or not rate_factor >= 0:
            raise ValueError(
                f"rate {lr}, weight decay {weight_decay} and factor {rate_factor} are 0 or more, "
                f"momentum {momentum} is below 1"
            )
        defaults = {
            "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
            "orthogonal": orthogonal, "rate_factor": rate_factor,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step; a closure is called first, as torch's optimizers do."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            with torch.set_grad_enabled(group["differentiable"]):
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        orthogonal, momentum = group["orthogonal"] and parameter.dim() >= 2, group["momentum"]
        if not orthogonal and group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * parameter
        if momentum:
            state = self.state[parameter]
            before = state.get("momentum_buffer")
            state["momentum_buffer"] = buffer = gradient.clone() if before is None else momentum * before + gradient
            gradient = gradient + momentum * buffer if group["nesterov"] else buffer
        rate = group["lr"] * group["rate_factor"]
        if orthogonal:
            parameter.mul_(1 - rate * group["weight_decay"])
            gradient = orthogonalized(gradient.flatten(1)).view_as(parameter)
        parameter.add_(gradient, alpha=-rate)
