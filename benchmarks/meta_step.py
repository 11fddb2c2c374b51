"""Data coefficients by one Jacobian-vector product against double back-propagation: time and peak memory.

    python benchmarks/meta_step.py [--rounds 7] [--threads 1]

Both start from the same batches (100 noisy, 100 trusted, 32x32) and include the forward pass of the noisy batch.
Time is interleaved in one process; memory is the growth of a fresh process at its peak, in turns.
"""

import argparse
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.func import functional_call

from karat import AlgorithmSettings
from karat.algorithm.coefficients import meta_gradient
from karat.algorithm.network import Network
from karat.models import build_model
from timing import interleaved_seconds, machine, median_ratio, peak_increase

BATCH, CLASSES = 100, 10
MODELS = ("resnet-29", "wrn-16-2")


class Problem:
    """A network with momentum, a noisy batch with its pseudo labels, and a trusted batch."""

    def __init__(self, model: str) -> None:
        torch.manual_seed(0)
        self.module = build_model(model, (3, 32, 32), CLASSES).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        self.noisy, self.strong, self.trusted = (torch.randn(BATCH, 3, 32, 32) for _ in range(3))
        self.given, self.targets = (F.one_hot(torch.randint(CLASSES, (BATCH,)), CLASSES).float() for _ in range(2))
        F.cross_entropy(self.module(self.noisy), self.given).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.network = Network(self.module)
        with torch.no_grad():
            self.strong_pass = self.network.forward_pass(self.strong)

    def jvp(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return −∂L^p/∂ω and −∂L^p/∂λ as Karat does."""
        views = [self.network.forward_pass(self.noisy), self.strong_pass]
        gradient = meta_gradient(
            self.network, self.optimizer, views, self.given, self.trusted, self.targets, AlgorithmSettings()
        )
        return gradient.weights, gradient.label_trust

    def double_backward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same by back-propagating through the back-propagation."""
        parameters = dict(self.module.named_parameters())
        weights = torch.full((BATCH,), 1 / BATCH, requires_grad=True)
        trust = torch.full((BATCH, 1), AlgorithmSettings().initial_label_trust, requires_grad=True)
        logits = self.module(self.noisy)
        average = (logits.softmax(1) + self.strong_pass.logits.softmax(1)) / 2
        pseudo = (average**2 / (average**2).sum(1, keepdim=True)).detach()
        losses = F.cross_entropy(logits, trust * self.given + (1 - trust) * pseudo, reduction="none")
        gradients = torch.autograd.grad((weights * losses).sum(), list(parameters.values()), create_graph=True)
        ahead = {}
        for (name, p), g in zip(parameters.items(), gradients, strict=True):
            buffer = self.optimizer.state[p]["momentum_buffer"]
            ahead[name] = p.detach() - 0.1 * (0.9 * buffer + g + 5e-4 * p.detach())
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        trusted_loss = F.cross_entropy(
            functional_call(self.module, {**ahead, **buffers}, (self.trusted,)), self.targets
        )
        slopes = torch.autograd.grad(trusted_loss, [weights, trust])
        return -slopes[0], -slopes[1].squeeze(1)


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory-of", nargs=2, metavar=("MODEL", "VARIANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        model, variant = options.memory_of
        print(peak_increase(getattr(Problem(model), variant)))
        return

    print(machine())
    print(f"batch {BATCH} + {BATCH}, 32x32, float32, medians of {options.rounds} interleaved rounds\n")
    print(
        "| network | double back-propagation | JVP | time ratio | memory increase | memory ratio | largest difference |"
    )
    print("|---|---|---|---|---|---|---|")
    for model in MODELS:
        problem = Problem(model)
        variants = {"double_backward": problem.double_backward, "jvp": problem.jvp}
        ours, theirs = problem.jvp(), problem.double_backward()
        difference = max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True))
        seconds = interleaved_seconds(variants, options.rounds)
        memory: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(5):
            for name in variants:
                command = [sys.executable, __file__, "--threads", str(options.threads), "--memory-of", model, name]
                memory[name].append(int(subprocess.run(command, check=True, capture_output=True).stdout))
        slow, fast = (statistics.median(memory[name]) / 2**20 for name in ("double_backward", "jvp"))
        times = {name: statistics.median(values) for name, values in seconds.items()}
        print(
            f"| {model} | {times['double_backward']:.2f} s | {times['jvp']:.2f} s "
            f"| {median_ratio(seconds, 'jvp', 'double_backward'):.2f}x | {slow:.0f} -> {fast:.0f} MiB "
            f"| {fast / slow:.2f}x | {difference:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
