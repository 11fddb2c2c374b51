"""The last layers alone: which parameters they hold, and how a pass is repeated from where they begin.

A meta step that moves the last layers only needs no gradient of what comes before them, and need not compute it
again: the forward pass did. `LayerRecording` notes the calls of a forward pass. `Resuming` repeats the pass, and takes
the results of the calls before the last layers from those that the graph of the forward pass still keeps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from karat.algorithm.fast_tangents import LinearOutput, is_linear
from karat.errors import UserError


class _Made:
    """A tensor that a call returned: itself while it is there and unchanged, else a tensor without numbers."""

    def __init__(self, tensor: Tensor) -> None:
        self._kept = LinearOutput(tensor)
        self._shape, self._dtype = tensor.shape, tensor.dtype

    def again(self) -> Tensor:
        value = self._kept.value()
        return torch.empty(self._shape, dtype=self._dtype, device="meta") if value is None else value


class _Call(NamedTuple):
    function: Callable
    result: Any


class _Start(NamedTuple):
    """Where a layer begins: the calls before it, how many of them were linear, and the random state there."""

    calls: int
    linear_calls: int
    random_state: Any


class LastLayers(NamedTuple):
    """The last layers of a forward pass: the names of their parameters, and the calls before them."""

    names: tuple[str, ...]
    calls_before: Sequence[_Call]
    linear_calls_before: int
    random_state: Any

    def forgetful(self) -> "LastLayers":
        """Return the same layers without what came before them."""
        return self._replace(calls_before=(), linear_calls_before=0)


class ResultsGone(Exception):
    """A result of the first layers that the last ones need is not there any more: run the whole pass."""


class LayerRecording(TorchFunctionMode):
    """Note the calls of a forward pass, and where layers begin.

    A layer is a call with a parameter of two or more dimensions that no call before it had, such as the weight of a
    convolution. A parameter belongs to the layer in which it is used first, or to the last one before its first use.
    """

    def __init__(self, parameters: Mapping[str, Tensor], random_state: Callable[[], Any]) -> None:
        super().__init__()
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._random_state = random_state
        self._calls: list[_Call] = []
        self._first_use: dict[str, int] = {}
        self._starts: list[_Start] = []
        self._linear_calls = 0

    def __torch_function__(
        self, function: Callable, types: Any, args: Sequence = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function; note what it returned, and the parameters that it was the first to use."""
        found = [tensor for tensor in _tensors((args, kwargs)) if id(tensor) in self._names]
        new = [tensor for tensor in found if self._names[id(tensor)] not in self._first_use]
        state = self._random_state() if any(tensor.dim() > 1 for tensor in new) else None
        output = function(*args, **(kwargs or {}))
        if any(True for _ in _tensors(output)):  # a question about a parameter, such as its shape, is no use of it
            self._first_use.update({self._names[id(tensor)]: len(self._calls) for tensor in new})
            if state is not None:
                self._starts.append(_Start(len(self._calls), self._linear_calls, state))
        self._linear_calls += is_linear(function, args, kwargs)
        self._calls.append(_Call(function, _each_tensor(output, _Made)))
        return output

    def last(self, layers: int) -> LastLayers:
        """Return the last layers; all of them where there are no more."""
        if not self._starts:
            raise UserError(
                "meta_layers cannot be used with this network: it calls no layer of torch with a weight that is "
                "trained. Leave meta_layers out."
            )
        start = self._starts[-layers] if layers < len(self._starts) else _Start(0, 0, self._starts[0].random_state)
        names = tuple(name for name, use in self._first_use.items() if use >= start.calls)
        return LastLayers(names, self._calls[: start.calls], start.linear_calls, start.random_state)


class Resuming(TorchFunctionMode):
    """Repeat a recorded pass from its last layers on: calls before them return what they had returned."""

    def __init__(self, last: LastLayers, set_random_state: Callable[[Any], None]) -> None:
        super().__init__()
        self._last, self._set_random_state = last, set_random_state
        self._place = 0

    def __torch_function__(
        self, function: Callable, types: Any, args: Sequence = (), kwargs: dict | None = None
    ) -> Any:
        """Return the recorded result, or call the function once the last layers have begun."""
        place, before = self._place, self._last.calls_before
        self._place += 1
        if place < len(before):
            if before[place].function is not function:
                raise ResultsGone
            return _each_made(before[place].result)
        if place == len(before) and before:
            self._set_random_state(self._last.random_state)
        if any(tensor.is_meta for tensor in _tensors((args, kwargs))):
            raise ResultsGone
        return function(*args, **(kwargs or {}))


def _tensors(values: Any) -> Iterator[Tensor]:
    """Find the tensors among arguments or results."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _each_tensor(values: Any, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, (tuple, list)) and any(True for _ in _tensors(values)):
        return [_each_tensor(value, change) for value in values]
    return values


def _each_made(result: Any) -> Any:
    if isinstance(result, _Made):
        return result.again()
    if isinstance(result, list) and any(isinstance(one, (_Made, list)) for one in result):
        return tuple(_each_made(one) for one in result)
    return result
