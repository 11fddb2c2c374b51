"""How fast this machine trains a network: reckoned from its multiplications, or measured.

On one core of a shared EPYC (torch 2.15, float32) a step of `ieg` did 1.0 to 1.4 billion forward operations a second in
`small` (12 to 224 pixels) and `mlp` (768 features), 2.3 to 2.8 in `resnet18` and `wrn-28-2`. Plain training of
`fast-16` does 29 billion (32 pixels). A GPU is taken for a hundred such cores; that is not measured.
"""

import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from karat.algorithm.network import Network
from karat.data.modality import modality_of
from karat.models import PRETRAINED, build_model
from karat.settings.config import OptimizerSettings
from karat.training.optimizers import make_optimizer, settled
from karat.training.precision import checked_precision

OPERATIONS_A_SECOND = {"cpu": 1.2e10, "cuda": 1.2e12}  # forward ones, in a step of plain training
OF_FAST = 2.0  # times as many in `fast`
# A step of a method, in steps of plain training: CIFAR-10, `fast`, batches of 100, one core (ieg 0.61 s, plain 0.08 s).
COSTS = {
    "ieg": 8.0, "divide_mix": 8.0, "mixmatch_kl": 6.0, "mixmatch": 4.0, "karat": 3.0, "l2r": 3.0, "co_teaching": 2.0,
    "incv": 2.0, "mentornet": 1.5,
}  # fmt: skip
SECONDS_A_STEP = 0.015  # whatever the network: an ieg step of an mlp on 20 vectors


def measured_seconds(
    shape: tuple[int, ...], classes: int, device: str, model: str, batch_size: int, precision: str = "float32"
) -> float:
    """Measure a step of plain training on this machine, not compiled: the median of three after one to warm up.

    The global random state is put back.
    """
    with torch.random.fork_rng(devices=[]):
        network: nn.Module = build_model(model, shape, classes, fetch=False).to(
            memory_format=modality_of(shape).memory_format
        )
        network = network.to(device)
        passes = Network(network, precision=checked_precision(precision, torch.device(device)))
        optimizer = make_optimizer(network, settled(OptimizerSettings(), model))
        inputs, labels = (
            torch.rand(batch_size, *shape, device=device),
            torch.arange(batch_size, device=device) % classes,
        )
        durations = []
        for _ in range(4):
            began = time.perf_counter()
            optimizer.zero_grad()
            cross_entropy(passes(inputs), labels).backward()
            optimizer.step()
            if device != "cpu":
                torch.get_device_module(device).synchronize()
            durations.append(time.perf_counter() - began)
    return sorted(durations[1:])[1]


def operations(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return the multiplications and additions of one forward pass of one example; nothing is computed.

    >>> operations("mlp", (13,), classes=3)  # 2·(13·256 + 256·256 + 256·3)
    139264
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = build_model(model.removesuffix(PRETRAINED), shape, classes).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(torch.zeros(1, *shape))
    return int(counter.get_total_flops())


def seconds_a_step(
    forward_operations: float, batch_size: int, device: str = "cpu", cores: int = 1, cost: float = 1.0
) -> float:
    """Return roughly how long a step of a method takes; n cores count as n^0.7, because small pieces do not share well.

    >>> round(seconds_a_step(5_370_000, 100, cost=8), 2)  # ieg, `small` at 28x28; measured 0.47
    0.37
    """
    speed = OPERATIONS_A_SECOND[device] * (cores**0.7 if device == "cpu" else 1)
    return SECONDS_A_STEP + cost * batch_size * forward_operations / speed
