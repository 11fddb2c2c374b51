"""The same Jacobian-vector product in two thirds of the time: rules for the layers that cost most.

torch's forward mode computes `conv(x, w)`, `conv(ẋ, w)` and `conv(x, ẇ)` for a convolution, and a dozen passes over
the batch for a BatchNorm. But the first of these was computed in the forward pass already, and BatchNorm's tangent is
affine in x and ẋ, channel by channel. `Recording` notes the outputs of linear layers during a forward pass, and
`FastTangents` uses those that are still there when the pass is repeated with tangents. Every other operation keeps
torch's own rule.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LINEAR = {F.linear, F.conv1d, F.conv2d, F.conv3d}


class LinearOutput:
    """What a linear layer returned, for as long as the graph of the forward pass keeps it.

    Held weakly: an output that only an addition used (the last one of a residual block) is computed anew rather than
    kept in memory. The version tells whether somebody changed it in place since.
    """

    def __init__(self, output: Tensor) -> None:
        self._output = weakref.ref(output)
        self._version = output._version

    def value(self) -> Tensor | None:
        """Return the output, or None if it is gone or was changed."""
        output = self._output()
        return None if output is None or output._version != self._version else output.detach()


class Recording(TorchFunctionMode):
    """Note the outputs of the linear layers, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[LinearOutput] = []

    def __torch_function__(
        self, function: Callable, types: Any, args: Sequence = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function; remember what a linear layer returned."""
        output = function(*args, **(kwargs or {}))
        if is_linear(function, args, kwargs):
            self.outputs.append(LinearOutput(output))
        return output


class FastTangents(TorchFunctionMode):
    """Repeat a recorded forward pass with dual numbers, with cheaper rules for linear layers and BatchNorm."""

    def __init__(self, recorded: Iterable[LinearOutput]) -> None:
        super().__init__()
        self._recorded = iter(recorded)

    def __torch_function__(
        self, function: Callable, types: Any, args: Sequence = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function, by its cheaper rule where there is one."""
        if is_linear(function, args, kwargs):
            return _linear(function, next(self._recorded, None), *args)
        if function is F.batch_norm:
            dual = _batch_norm(*args, **(kwargs or {}))
            if dual is not None:
                return dual
        return function(*args, **(kwargs or {}))


def is_linear(function: Callable, args: Sequence, kwargs: dict | None) -> bool:
    """Return whether a call is one of those whose outputs are noted."""
    return function in _LINEAR and len(args) >= 3 and not kwargs


def _linear(
    function: Callable, recorded: LinearOutput | None, x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any
) -> Tensor:
    """z = f(x, w) + b  ->  ż = f(ẋ, w) + f(x, ẇ) + ḃ."""
    (x, x_slope), (weight, weight_slope) = forward_ad.unpack_dual(x), forward_ad.unpack_dual(weight)
    bias, bias_slope = (None, None) if bias is None else forward_ad.unpack_dual(bias)
    value = None if recorded is None else recorded.value()
    if value is None:
        value = function(x, weight, bias, *options)
    slope = None
    if weight_slope is not None:
        slope = function(x, weight_slope, bias_slope, *options)
    elif bias_slope is not None:
        channel = 1 if function is not F.linear else value.dim() - 1
        slope = bias_slope.view([-1 if axis == channel else 1 for axis in range(value.dim())]).expand_as(value)
    if x_slope is not None:
        through_input = function(x_slope, weight, None, *options)
        slope = through_input if slope is None else through_input.add_(slope)
    return value if slope is None else forward_ad.make_dual(value, slope)


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """y = γ·x̂ + β, x̂ = (x − μ)/σ  ->  ẏ = γ/σ·(ẋ − mean(ẋ) − x̂·mean(x̂·ẋ)) + γ̇·x̂ + β̇, as a·ẋ + b·x + c by channel.

    Scale and shift may be missing, or stand still. Returns None for the cases left to torch: evaluation mode, another
    type of numbers than the input's, or an input that does not move. The running statistics need no update: a repeated
    pass has copies of them, which nobody reads.
    """
    x, x_slope = forward_ad.unpack_dual(x)
    weight, weight_slope = (None, None) if weight is None else forward_ad.unpack_dual(weight)
    bias, bias_slope = (None, None) if bias is None else forward_ad.unpack_dual(bias)
    if not training or x_slope is None or any(p is not None and p.dtype != x.dtype for p in (weight, bias)):
        return None
    value, mean, inverse_deviation = torch.native_batch_norm(x, weight, bias, None, None, True, momentum, eps)
    slope = batch_norm_slope(x, x_slope, mean, inverse_deviation, weight, weight_slope, bias_slope)
    return forward_ad.make_dual(value, slope)


def batch_norm_slope(
    x: Tensor,
    x_slope: Tensor,
    mean: Tensor,
    inverse_deviation: Tensor,
    weight: Tensor | None,
    weight_slope: Tensor | None,
    bias_slope: Tensor | None,
    mean_of_all: Callable[[Tensor], Tensor] = lambda means: means,
) -> Tensor:
    """Return ẏ of a BatchNorm from the statistics of its inputs, see `_batch_norm`.

    `mean_of_all` makes means over all rows of those over the rows of x, where x is only a part of them.
    """
    axes = [axis for axis in range(x.dim()) if axis != 1]
    slope_mean, product_mean = mean_of_all(torch.stack([x_slope.mean(axes), (x * x_slope).mean(axes)]))
    correlation = (product_mean - mean * slope_mean) * inverse_deviation
    a = inverse_deviation if weight is None else inverse_deviation * weight
    b = -inverse_deviation * a * correlation
    if weight_slope is not None:
        b = b + inverse_deviation * weight_slope
    c = -mean * b - a * slope_mean
    if bias_slope is not None:
        c = c + bias_slope
    shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
    return torch.addcmul(c.view(shape), x, b.view(shape)).addcmul_(x_slope, a.view(shape))
