"""Any `nn.Module` as a function of its parameters: forward passes that can be repeated without a trace."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from karat.algorithm.compiled import Compiled, KeepingBuffers
from karat.algorithm.fast_tangents import LinearOutput, Recording
from karat.algorithm.last_layers import LastLayers, LayerRecording, ResultsGone, Resuming
from karat.algorithm.ranks import Ranks

Parameters = dict[str, Tensor]

SMALLEST_PIECE = 2  # examples: one has no BatchNorm statistics


class RandomState(NamedTuple):
    """The state of torch's global generators that a forward pass (dropout, stochastic depth) draws from."""

    cpu: Tensor
    accelerator: Tensor | None


class ForwardPass(NamedTuple):
    """One forward pass of the network and what it takes to repeat it."""

    inputs: Tensor
    logits: Tensor
    random_state: RandomState
    linear_outputs: Sequence[LinearOutput] = ()
    last_layers: LastLayers | None = None
    """The layers that a meta step moves; None where it moves all."""


def _identity(output: Any) -> Any:
    return output


@dataclass(frozen=True)
class Network:
    """A module together with the adapter that reads the logits from what it returns.

    `ranks` are the processes that share its passes; inputs and logits are always those of the whole batch. With
    `pieces` a pass keeps nothing for the way back, but is computed again there, one piece of the batch after the other:
    exact, but that BatchNorm sees one piece. `precision` is a shorter type of numbers for ordinary passes (autocast),
    `compiled` a faster way to compute them. Passes at other parameters (look-ahead, Jacobian-vector product) have
    neither: a look-ahead step is smaller than what bfloat16 rounds away, and forward mode goes past compiled code. With
    `own_statistics` BatchNorm has those of the rows of each process.

    >>> module = nn.Linear(3, 2)
    >>> Network(module, logits_of=lambda output: output * 2)(torch.ones(1, 3)).shape
    torch.Size([1, 2])
    """

    module: nn.Module
    logits_of: Callable[[Any], Tensor] = _identity
    ranks: Ranks | None = None
    pieces: int | None = None
    precision: torch.dtype | None = None
    compiled: Compiled | None = None
    own_statistics: bool = False

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the logits; an ordinary forward pass, which moves BatchNorm statistics as always."""
        logits = self._passed(self.compiled or self.module, inputs, self.precision)
        self._average_statistics()
        return logits

    def forward_pass(self, inputs: Tensor, last_layers: int | None = None) -> ForwardPass:
        """Return the logits together with what `repeat` needs to run the same pass once more.

        With `last_layers` a meta step moves the parameters of so many layers at the end of the pass, and no others;
        compiled code does not tell layers apart.
        """
        if last_layers is None and self.compiled is not None and not self.compiled.failed:
            state = random_state(inputs.device)
            return ForwardPass(inputs, self(inputs), state)
        forward = self._recorded(self.module, inputs, last_layers, self.precision)
        self._average_statistics()
        return forward

    def traceless_pass(self, inputs: Tensor, last_layers: int | None = None) -> ForwardPass:
        """Return the same, but leave buffers and random state as they are."""
        with preserving_random_state(inputs.device):
            return self._recorded(self._called_with(self.trainable()), inputs, last_layers)

    def trainable(self) -> Parameters:
        """Return the parameters that require gradients; tied ones once."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def moved_by(self, forward: ForwardPass) -> Parameters:
        """Return the parameters that a meta step on a forward pass moves: all trainable ones, or the last layers'."""
        parameters = self.trainable()
        return parameters if forward.last_layers is None else {n: parameters[n] for n in forward.last_layers.names}

    def at(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Return the logits with other parameters; the module's buffers stay as they are."""
        return self._passed(self._called_with(parameters), inputs)

    def repeat(
        self,
        forward: ForwardPass,
        parameters: Mapping[str, Tensor],
        rules: Callable[[Sequence[LinearOutput]], AbstractContextManager] = nullcontext,
    ) -> Tensor:
        """Repeat a forward pass with other parameters, the same dropout masks and no trace left.

        `rules` makes the context in which it runs from the linear outputs of the pass. A pass whose last layers alone
        are moved starts with them where what they need is still there.
        """
        inputs, last = forward.inputs, forward.last_layers
        if last is not None and last.calls_before and self.pieces is None:
            resuming = Resuming(last, lambda state: set_random_state(state, inputs.device))
            outputs = forward.linear_outputs[last.linear_calls_before :]
            with suppress(ResultsGone), preserving_random_state(inputs.device), rules(outputs):
                return self._passed(_within(resuming, self._called_with(parameters)), inputs)
        with replaying(forward.random_state, inputs.device), rules(forward.linear_outputs):
            return self.at(parameters, inputs)

    def add_up(self, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """Return the gradients of the whole batch from those of this process."""
        return gradients if self.ranks is None else self.ranks.add_up(gradients)

    def add_up_gradients(self) -> None:
        """Make the gradients that the parameters have those of the whole batch."""
        if self.ranks is not None:
            parameters = list(self.module.parameters())
            whole = self.ranks.add_up([parameter.grad for parameter in parameters])
            for parameter, gradient in zip(parameters, whole, strict=True):
                parameter.grad = gradient

    def whole(self, part: Tensor, rows: int) -> Tensor:
        """Return what a layer gave for the whole batch from what it gave for the rows of this process."""
        return part if self.ranks is None else self.ranks.whole(part, rows)

    def _average_statistics(self) -> None:
        if self.own_statistics and self.ranks is not None:
            self.ranks.average([one for layer in self.module.modules() for one in _moving_statistics(layer)])

    def _recorded(
        self,
        call: Callable[[Tensor], Any],
        inputs: Tensor,
        last_layers: int | None,
        precision: torch.dtype | None = None,
    ) -> ForwardPass:
        state = random_state(inputs.device)
        layers = None if last_layers is None else LayerRecording(self.trainable(), lambda: random_state(inputs.device))
        with Recording() as recording:
            logits = self._passed(call if layers is None else _within(layers, call), inputs, precision)
        last = None if layers is None or last_layers is None else layers.last(last_layers)
        if precision is None:
            return ForwardPass(inputs, logits, state, recording.outputs, last)
        # Nothing here that the repeated pass, in float32, could use.
        return ForwardPass(inputs, logits, state, last_layers=None if last is None else last.forgetful())

    def _called_with(self, parameters: Mapping[str, Tensor]) -> Callable[[Tensor], Any]:
        # functional_call writes new BatchNorm statistics into the tensors that it is given: give it clones.
        buffers = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        return lambda own: functional_call(self.module, {**parameters, **buffers}, (own,))

    def _passed(self, call: Callable[[Tensor], Any], inputs: Tensor, precision: torch.dtype | None = None) -> Tensor:
        def of_part(part: Tensor) -> Tensor:
            with autocast_to(precision, part.device):
                found = self.logits_of(call(part))
            return found if precision is None else found.float()

        def logits(piece: Tensor) -> Tensor:
            return of_part(piece) if self.ranks is None else self.ranks.share(of_part, piece, self.own_statistics)

        if self.pieces is None:
            return logits(inputs)
        parts = inputs.tensor_split(max(1, min(self.pieces, len(inputs) // SMALLEST_PIECE)))
        if not torch.is_grad_enabled():
            return torch.cat([logits(part) for part in parts])
        contexts = (nullcontext(), KeepingBuffers(self.module))  # of a pass, and of the same pass computed again
        return torch.cat([checkpoint(logits, part, use_reentrant=False, context_fn=lambda: contexts) for part in parts])


def autocast_to(precision: torch.dtype | None, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context in which a network computes in a shorter type of numbers; None changes nothing."""
    return nullcontext() if precision is None else torch.autocast(device.type, dtype=precision)


def _within(context: AbstractContextManager, call: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Return the same call, made within a context: inside the one that shares a pass among processes."""

    def called(inputs: Tensor) -> Any:
        with context:
            return call(inputs)

    return called


def _moving_statistics(layer: nn.Module) -> list[Tensor]:
    """Return the running mean and variance of a BatchNorm that moves them."""
    if not (isinstance(layer, _BatchNorm) and layer.training):
        return []
    return [one for one in (layer.running_mean, layer.running_var) if one is not None]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode without gradients; afterwards every submodule has its own mode again.

    `model.train()` would not do: it would also wake the parts that somebody froze with `eval()`.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def random_state(device: torch.device) -> RandomState:
    """Read the state of the generators that a forward pass on `device` draws from."""
    accelerator = torch.get_device_module(device).get_rng_state(device) if _has_generator(device) else None
    return RandomState(torch.get_rng_state(), accelerator)


def set_random_state(state: RandomState, device: torch.device) -> None:
    """Set the generators that `random_state` reads."""
    torch.set_rng_state(state.cpu)
    if state.accelerator is not None:
        torch.get_device_module(device).set_rng_state(state.accelerator, device)


@contextmanager
def replaying(state: RandomState, device: torch.device) -> Iterator[None]:
    """Run the body from a recorded random state and leave the global one untouched."""
    before = random_state(device)
    set_random_state(state, device)
    try:
        yield
    finally:
        set_random_state(before, device)


@contextmanager
def preserving_random_state(device: torch.device) -> Iterator[None]:
    """Run the body from the present random state and put that back afterwards."""
    with replaying(random_state(device), device):
        yield


def _has_generator(device: torch.device) -> bool:
    return device.type in ("cuda", "xpu")
