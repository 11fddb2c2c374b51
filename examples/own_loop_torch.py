"""The data coefficients in a plain torch loop: digits with 80% uniform label noise, 10 trusted labels a class.

    python examples/own_loop_torch.py [--steps 200]

Prints the test accuracy of plain training and of training with `karat.data_coefficients`, and which share of the weight
right labels had. Both loops learn from the trusted labels, too.
"""

import argparse
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from karat import data_coefficients


class Digits(NamedTuple):
    """All images with true and given labels, and which of them are for what."""

    inputs: Tensor
    true: Tensor
    given: Tensor
    noisy: Tensor
    trusted: Tensor
    test: Tensor


def load(seed: int = 0) -> Digits:
    """Split scikit-learn's digits and redraw 80% of the labels from all ten classes."""
    draw = torch.Generator().manual_seed(seed)
    digits = load_digits()
    inputs, true = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1, torch.tensor(digits.target)
    redrawn = torch.rand(len(true), generator=draw) < 0.8
    given = torch.where(redrawn, torch.randint(10, true.shape, generator=draw), true)
    order = torch.randperm(len(true), generator=draw)
    test, rest = order[:497], order[497:]
    trusted = torch.cat([rest[true[rest] == digit][:10] for digit in range(10)])
    return Digits(inputs, true, given, rest[~torch.isin(rest, trusted)], trusted, test)


def train(data: Digits, reweigh: bool, steps: int, seed: int = 0) -> tuple[float, float]:
    """Return the test accuracy, and the share of the weight on right labels in the second half of the steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    trusted = data.inputs[data.trusted], data.true[data.trusted]
    shares = []
    for _ in range(steps):
        rows = data.noisy[torch.randint(len(data.noisy), (100,))]
        x, y = data.inputs[rows], data.given[rows]
        weights = torch.full((100,), 0.01)
        if reweigh:
            weights = data_coefficients(model, optimizer, (x, y), trusted).weights
        loss = (weights * cross_entropy(model(x), y, reduction="none")).sum()
        loss = loss + cross_entropy(model(trusted[0]), trusted[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        shares.append(weights[y == data.true[rows]].sum().item())
    predicted = model.eval()(data.inputs[data.test]).argmax(dim=1)
    last = shares[steps // 2 :]
    return (predicted == data.true[data.test]).float().mean().item(), sum(last) / len(last)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    for name, reweigh in (("plain", False), ("data coefficients", True)):
        accuracy, share = train(load(), reweigh, steps)
        print(f"{name:18} test accuracy {accuracy:6.1%}   weight on right labels {share:6.1%}")
