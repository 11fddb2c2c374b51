"""Processes that take every step together: each runs the network on its part of a batch, all know all logits.

What is cheap (views, targets, losses, weights, memories) every process computes for the whole batch, from the same
random numbers; what costs, the passes of the network, is shared out. So a method is written for one process, and sees
what it would see in one: the batch of all processes together. Three things make that exact:

- `share` runs a pass on this process's rows and returns the logits of all rows; on the way back each process takes the
  slope of its own rows;
- BatchNorm uses the statistics of all rows (`SharedPass`), forwards, backwards and along a tangent; dropout draws the
  mask of all rows and takes its own;
- `add_up` sums the gradients of the parameters, each process having those of its rows.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.autograd.forward_ad as forward_ad
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from karat.algorithm.fast_tangents import batch_norm_slope
from karat.errors import UserError

T = TypeVar("T")

_BROKEN = re.compile("connect|gloo/transport|broken pipe|timed out|timeout", re.IGNORECASE)


class ProcessLost(UserError):
    """Another process of the run has ended before its work was done."""


class Ranks:
    """The processes of a run, of which this one is number `rank` of `count`; the first one has number 0."""

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._alone = False

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that writes and speaks."""
        return self.rank == 0

    def part(self, rows: int) -> slice:
        """Return the rows that are this process's: equally many for each, and one more for the first ones."""
        sizes = self._sizes(rows)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])

    def share(self, call: Callable[[Tensor], Tensor], inputs: Tensor, own_statistics: bool = False) -> Tensor:
        """Return what `call` returns for all inputs; every process calls it with its own part of them.

        The slope of what is returned must be the same in every process, as that of a loss of all rows is. Fewer rows
        than processes are not shared out: each process computes all of them, and counts for its share of the gradient.
        With `own_statistics` BatchNorm sees the rows of this process alone.
        """
        rows = len(inputs)
        if self._alone or inputs.layout is not torch.strided:  # sparse rows have no parts, and nothing trains on them
            return call(inputs)
        if rows < self.count:
            output = call(inputs)
            return _Share.apply(output, self.count) if torch.is_grad_enabled() else output
        own = self.part(rows)
        with SharedPass(self, rows, own_statistics):
            return self.whole(call(inputs[own]), rows)

    def whole(self, part: Tensor, rows: int) -> Tensor:
        """Return the rows of all processes from this one's; a tensor that is whole already stays as it is."""
        if self._alone or rows < self.count:
            return part
        value, slope = forward_ad.unpack_dual(part)
        if slope is None:
            return _Whole.apply(value, self, rows)
        return forward_ad.make_dual(_Whole.apply(value, self, rows), _Whole.apply(slope, self, rows))

    def add_up(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the sums over all processes, as new tensors; all go in one message."""
        found = [gradient for gradient in gradients if gradient is not None]
        if self._alone or not found:
            return list(gradients)
        summed = iter(self.total(torch.cat([one.reshape(-1) for one in found])).split([one.numel() for one in found]))
        return [None if one is None else next(summed).view(one.shape) for one in gradients]

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum over all processes, in place."""
        _heard(dist.all_reduce, tensor)
        return tensor

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all processes; all go in one message."""
        if self._alone or not tensors:
            return
        means = self.total(torch.cat([one.reshape(-1) for one in tensors])) / self.count
        for one, mean in zip(tensors, means.split([one.numel() for one in tensors]), strict=True):
            one.data.copy_(mean.view(one.shape))  # `data`: the way back of a pass does not need what it moved

    def each(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, stacked."""
        found = tensor.new_empty(self.count * len(tensor), *tensor.shape[1:])
        _heard(dist.all_gather_into_tensor, found, tensor.contiguous())
        return found.view(self.count, *tensor.shape)

    def highest(self, number: int) -> int:
        """Return the largest of the processes' numbers."""
        found = torch.tensor(number)
        _heard(dist.all_reduce, found, op=dist.ReduceOp.MAX)
        return int(found)

    def all_values(self, value: T) -> list[T]:
        """Return the values of all processes, in their order."""
        found: list[Any] = [None] * self.count
        _heard(dist.all_gather_object, found, value)
        return found

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what `make` returns in the first process, which works alone meanwhile; an error is raised in all."""
        made: list[Any] = [None, None]
        if self.is_first:
            try:
                with self._working_alone():
                    made[0] = make()
            except UserError as error:
                made[1] = error
        _heard(dist.broadcast_object_list, made, src=0, device=torch.device("cpu"))
        if made[1] is not None:
            raise made[1]
        return made[0]

    def shares(self, rows: int) -> list[float]:
        """Return the share of the rows that each process has."""
        return [size / rows for size in self._sizes(rows)]

    def _sizes(self, rows: int) -> list[int]:
        return [rows // self.count + (rank < rows % self.count) for rank in range(self.count)]

    @contextmanager
    def _working_alone(self) -> Iterator[None]:
        self._alone = True
        try:
            yield
        finally:
            self._alone = False


class SharedModel(nn.Module):
    """A model whose passes the processes share."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        super().__init__()
        self.model, self._ranks = model, ranks

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the model returns for all inputs."""
        return self._ranks.share(self.model, inputs)


def _heard(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call an operation of torch.distributed; where another process does not answer any more, say so."""
    try:
        operation(*args, **kwargs)
    except RuntimeError as error:  # gloo has no error of its own for it
        if not isinstance(error, dist.DistError) and not _BROKEN.search(str(error)):
            raise
        raise ProcessLost("Another process of this run has ended: see what it said, and go on with --resume.") from None


class _Whole(torch.autograd.Function):
    """Rows of one process -> rows of all; backwards each takes its own."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: Ranks, rows: int) -> Tensor:
        ctx.own = ranks.part(rows)
        found = part.new_zeros(rows, *part.shape[1:])
        found[ctx.own] = part
        return ranks.total(found)  # of numbers and zeros: exact

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        return slope[ctx.own], None, None


class _Share(torch.autograd.Function):
    """The identity whose slope is divided by a number."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int) -> Tensor:
        ctx.count = count
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        return slope / ctx.count, None


class SharedPass(TorchFunctionMode):
    """Let BatchNorm and dropout, in a pass over the rows of one process, do what they would do with all rows.

    torch's SyncBatchNorm computes on GPUs alone and has no forward-mode rule. With `own_statistics` BatchNorm is left
    as it is.
    """

    def __init__(self, ranks: Ranks, rows: int, own_statistics: bool = False) -> None:
        super().__init__()
        self._own_statistics = own_statistics
        self._ranks, self._rows, self._own = ranks, rows, ranks.part(rows)

    def __torch_function__(
        self, function: Callable, types: Any, args: Sequence = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function, for all rows where that makes a difference."""
        kwargs = kwargs or {}
        if function is F.batch_norm and not self._own_statistics:
            return self._batch_norm(*args, **kwargs)
        if function is F.dropout:
            return self._dropout(*args, **kwargs)
        if function is Tensor.bernoulli_ and self._is_part(args[0]):  # stochastic depth
            return args[0].copy_(self._of_all(args[0]).bernoulli_(*args[1:], **kwargs)[self._own])
        return function(*args, **kwargs)

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0 or not self._is_part(x):
            return F.dropout(x, p, training, inplace)
        return x * F.dropout(torch.ones_like(self._of_all(x)), p)[self._own]

    def _is_part(self, tensor: Tensor) -> bool:
        return tensor.dim() > 0 and len(tensor) == self._own.stop - self._own.start

    def _of_all(self, part: Tensor) -> Tensor:
        return torch.empty(self._rows, *part.shape[1:], dtype=part.dtype, device=part.device)

    def _batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training:
            return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        x, x_slope = forward_ad.unpack_dual(x)
        weight, weight_slope = (None, None) if weight is None else forward_ad.unpack_dual(weight)
        bias, bias_slope = (None, None) if bias is None else forward_ad.unpack_dual(bias)
        value, mean, variance = _SharedNorm.apply(x, weight, bias, eps, self._ranks, self._rows)
        if x_slope is not None or weight_slope is not None or bias_slope is not None:
            share = self._ranks.shares(self._rows)[self._ranks.rank]
            slope = batch_norm_slope(
                x, torch.zeros_like(x) if x_slope is None else x_slope, mean, (variance + eps).rsqrt(), weight,
                weight_slope, bias_slope, lambda means: self._ranks.total(means * share),
            )  # fmt: skip
            return forward_ad.make_dual(value, slope)
        if running_mean is not None and running_var is not None:
            count = x.numel() / x.shape[1] * self._rows / (self._own.stop - self._own.start)
            running_mean.lerp_(mean.to(running_mean), momentum)
            running_var.lerp_(variance.to(running_var) * (count / (count - 1)), momentum)
        return value


class _SharedNorm(torch.autograd.Function):
    """BatchNorm by the mean and the variance of the rows of all processes, which it returns, too."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, ranks: Ranks, rows: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        own = torch.stack(torch.var_mean(x if x.dtype == torch.float64 else x.float(), axes, correction=0))
        variances, means = ranks.each(own).unbind(1)
        shares = torch.tensor(ranks.shares(rows), dtype=means.dtype, device=means.device)
        mean = shares @ means
        variance = shares @ (variances + (means - mean).square())
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.ranks = eps, ranks
        ctx.count = x.numel() / x.shape[1] / ranks.shares(rows)[ranks.rank]
        ctx.mark_non_differentiable(mean, variance)
        scale, shift = (None if one is None else one.to(mean) for one in (weight, bias))
        return F.batch_norm(x, mean, variance, scale, shift, False, 0.0, eps), mean, variance

    @staticmethod
    def backward(ctx: Any, slope: Tensor, *_: Any) -> Any:
        """dx = γ/σ·(dy − mean(dy) − x̂·mean(dy·x̂)), the means over the rows of all; dγ and dβ are this process's."""
        x, weight, mean, variance = ctx.saved_tensors
        scale = torch.ones_like(mean) if weight is None else weight.to(mean)
        own_slope, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            slope, x, scale, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        through_deviation, through_mean = ctx.ranks.total(torch.stack([of_weight, of_bias])) / ctx.count
        inverse_deviation = (variance + ctx.eps).rsqrt()
        by_x = -scale * inverse_deviation.square() * through_deviation
        constant = -scale * inverse_deviation * through_mean - mean * by_x
        shape = [-1 if axis == 1 else 1 for axis in range(x.dim())]
        found = torch.addcmul(own_slope + constant.view(shape).to(x), x, by_x.view(shape).to(x))
        of_weight = None if weight is None else of_weight.to(weight)
        return found, of_weight, of_bias if ctx.needs_input_grad[2] else None, None, None, None
