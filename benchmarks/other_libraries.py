"""The weights' meta-gradient by Karat and by libraries for bilevel learning: time, and whether the numbers agree.

    python benchmarks/other_libraries.py [--rounds 5] [--models resnet-29 wrn-16-2]

−∂L^p/∂ω at ω0 = 1/B after one step of plain SGD, 100 noisy and 100 trusted images of 32x32: processor time of one
thread, medians of interleaved rounds. `higher` and TorchOpt back-propagate through their step: the same number.
Betty's `darts` is a finite difference after the step: another number, compared by its correlation. What is not
installed is left out. None of them is a dependency: `pip install higher torchopt betty-ml`.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor

from karat import AlgorithmSettings
from karat.algorithm.coefficients import meta_gradient
from karat.algorithm.network import Network
from karat.files.memory_need import keeping_freed_memory
from karat.models import build_model
from timing import interleaved_seconds, machine, median_ratio

BATCH, CLASSES, RATE = 100, 10, 0.1


class Problem:
    """A network, a noisy and a trusted batch; each method returns −∂L^p/∂ω and leaves the network as it was."""

    def __init__(self, model: str) -> None:
        torch.manual_seed(0)
        self.module = build_model(model, (3, 32, 32), CLASSES).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=RATE)
        self.noisy, self.trusted = (torch.randn(BATCH, 3, 32, 32) for _ in range(2))
        self.given, self.verified = (torch.randint(CLASSES, (BATCH,)) for _ in range(2))

    def karat(self) -> Tensor:
        """One Jacobian-vector product."""
        given, verified = (F.one_hot(labels, CLASSES).float() for labels in (self.given, self.verified))
        network = Network(self.module)
        views = [network.forward_pass(self.noisy)]
        settings = AlgorithmSettings(initial_label_trust=1.0)
        return meta_gradient(network, self.optimizer, views, given, self.trusted, verified, settings, given).weights

    def higher(self) -> Tensor:
        """Double back-propagation through a functional copy of the module."""
        import higher

        with higher.innerloop_ctx(self.module, self.optimizer) as (module, optimizer):
            weights = self._weights()
            optimizer.step(self._weighted(module, weights))
            return -torch.autograd.grad(F.cross_entropy(module(self.trusted), self.verified), weights)[0]

    def torchopt(self) -> Tensor:
        """Double back-propagation through a step that replaces the module's parameters."""
        import torchopt

        optimizer = torchopt.MetaSGD(self.module, lr=RATE)
        before = torchopt.extract_state_dict(self.module, by="reference")
        weights = self._weights()
        optimizer.step(self._weighted(self.module, weights))
        found = -torch.autograd.grad(F.cross_entropy(self.module(self.trusted), self.verified), weights)[0]
        torchopt.recover_state_dict(self.module, before)
        return found

    def betty(self) -> Tensor:
        """Finite differences of ∂L/∂ω at the parameters after the step, as Betty's engine has them."""
        from betty.hypergradient.darts import darts

        parameters = list(self.module.parameters())
        before = [parameter.detach().clone() for parameter in parameters]
        weights = self._weights()
        self.optimizer.zero_grad()
        self._weighted(self.module, weights).backward()
        self.optimizer.step()
        slope = torch.autograd.grad(F.cross_entropy(self.module(self.trusted), self.verified), parameters)
        lower = SimpleNamespace(
            config=SimpleNamespace(darts_alpha=0.01),
            trainable_parameters=lambda: parameters,
            training_step_exec=lambda _: self._weighted(self.module, weights),
            cur_batch=None,
        )
        (found,) = darts(slope, lower, SimpleNamespace(trainable_parameters=lambda: [weights]))
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)
        return -found

    def _weights(self) -> Tensor:
        return torch.full((BATCH,), 1 / BATCH, requires_grad=True)

    def _weighted(self, module: Callable[[Tensor], Tensor], weights: Tensor) -> Tensor:
        return (weights * F.cross_entropy(module(self.noisy), self.given, reduction="none")).sum()


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=["resnet-29", "wrn-16-2"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = ["karat", *[name for name in ("higher", "torchopt", "betty") if importlib.util.find_spec(name)]]
    print(machine())
    print("| network | library | seconds | of Karat's | largest difference | correlation |")
    print("|---|---|---|---|---|---|")
    for model in options.models:
        problem = Problem(model)
        variants = {name: getattr(problem, name) for name in names}
        found = {name: run() for name, run in variants.items()}
        seconds = interleaved_seconds(variants, options.rounds, time.process_time)
        for name in names:
            difference = ((found[name] - found["karat"]).abs().max() / found["karat"].abs().max()).item()
            correlation = torch.corrcoef(torch.stack([found[name], found["karat"]]))[0, 1].item()
            print(
                f"| {model} | {name} | {statistics.median(seconds[name]):.2f} "
                f"| {median_ratio(seconds, name, 'karat'):.2f}x | {difference:.0e} | {correlation:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    with keeping_freed_memory():
        main()
