"""Passes of a network through `torch.compile`, and through the network itself where that fails."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

logger = logging.getLogger("karat")

ALIKE = {False: 0.01, True: 0.3}  # how far compiled numbers may be from the network's, as a share; and in bfloat16


class KeepingBuffers:
    """Put the buffers back after a pass that is computed again: BatchNorm counts a batch once; may be entered again."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __enter__(self) -> None:
        self._before = [(buffer, buffer.clone()) for buffer in self._module.buffers()]

    def __exit__(self, *error: object) -> None:
        for buffer, values in self._before:
            buffer.data.copy_(values)  # `data`: autograd of an earlier pass takes no offence


class Compiled:
    """The passes of a module that are trained, compiled; those of the module itself where that fails.

    A pass of a new shape is tried before it counts, forwards and backwards, and leaves no trace: where it raises, the
    reason is said once, and nothing is compiled any more. Every shape has code of its own, so that a resumed run, which
    may see them in another order, computes the same bits. Random numbers (dropout) are drawn as the module draws them,
    so that a pass can be repeated without compiled code.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.failed = False
        self._tried: set[tuple[torch.Size, bool]] = set()
        self._made: Callable[[Tensor], Tensor] | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return what the module returns."""
        trained = self.module.training or torch.is_grad_enabled()
        case = inputs.shape, torch.is_grad_enabled()
        if trained and not self.failed and case not in self._tried:
            self._tried.add(case)
            self._try(inputs)
        return self._fast(inputs) if trained and not self.failed else self.module(inputs)

    def _fast(self, inputs: Tensor) -> Tensor:
        if self._made is None:  # torch takes seconds to load its compiler
            self._made = torch.compile(self.module, dynamic=False, options={"fallback_random": True})
        with _reusable_graphs():
            return self._made(inputs)

    def _try(self, inputs: Tensor) -> None:
        try:
            with KeepingBuffers(self.module), _kept_by_nobody():
                expected, found = (_gone_through(one, self.module, inputs) for one in (self.module, self._fast))
            _check_alike(expected, found)
        except Exception as error:  # whatever a compiler raises
            self.failed = True
            _say(f"{type(error).__name__}: {_first_sentence(error)}")


def _gone_through(call: Callable[[Tensor], Tensor], module: nn.Module, inputs: Tensor) -> list[list[Tensor]]:
    """Return what a pass makes: logits, and the gradients of two ways back; random numbers are drawn in vain."""
    with torch.random.fork_rng([inputs.device] if inputs.device.type == "cuda" else []):
        output = call(inputs)
    found = [[output.detach()]]
    if output.requires_grad:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        loss = output.float().square().mean()
        for _ in range(2):
            slopes = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            found.append([slope for slope in slopes if slope is not None])
    return found


def _check_alike(expected: list[list[Tensor]], found: list[list[Tensor]]) -> None:
    """Raise where compiled code computes something else than the module.

    It does in torch 2.15 on a processor: gradients in bfloat16 that are no numbers, and code from torch's cache that
    was made for one way back alone and overwrites what the second one needs.
    """
    tolerance = ALIKE[expected[0][0].dtype == torch.bfloat16]
    for what, wanted, had in zip(("logits", "gradients", "gradients"), expected, found, strict=False):
        total = float(torch.stack([one.float().norm() for one in wanted]).norm())
        for one, other in zip(wanted, had, strict=True):
            if not float((one - other).float().norm()) <= tolerance * (float(one.float().norm()) + 0.1 * total):
                raise RuntimeError(f"compiled code has other {what} than the network")


def _reusable_graphs() -> AbstractContextManager[None]:
    """Let compiled passes be gone back through twice: for the look-ahead, and for the step."""
    from torch._functorch import config

    return config.patch(donated_buffer=False) if hasattr(config, "donated_buffer") else nullcontext()


def _kept_by_nobody() -> AbstractContextManager[Any]:
    """Hide what a pass saves from whoever counts it, as one does that will compute a piece of a batch again."""
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved)


@cache
def _say(reason: str) -> None:
    logger.warning("The network is not compiled, and computes as without training.compile (%s).", reason)


def _first_sentence(error: Exception) -> str:
    """Return the first line of what an error says, without what follows.

    >>> _first_sentence(RuntimeError("No compiler found.\\n\\nSet TORCHDYNAMO_VERBOSE=1"))
    'No compiler found'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(" .:") if lines else "no reason given"
