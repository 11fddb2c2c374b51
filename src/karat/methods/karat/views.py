"""How the inputs look to the judges: those that heads learn from in memory, all others a few at a time."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from karat.methods.karat.appearance import Appearance, CommonLength, learn_appearance, one_length
from karat.methods.karat.constants import Constants
from karat.methods.karat.folds import View
from karat.methods.karat.neighbours import Walks, smoothed
from karat.methods.method import Task


class Eyes(NamedTuple):
    """How any input looks: described, smoothed over neighbours by each amount, and of one length."""

    appearance: Appearance
    walks: Walks
    scales: list[CommonLength]

    def others(self, task: Task, rows: Tensor, chunk: int) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Yield some of the rows and how they look by each amount, until there are no more."""
        for done, some in enumerate(rows.split(chunk) if len(rows) else (), start=1):
            versions = self.walks.smoothed(self.appearance.features(task.noisy_inputs, some))
            yield some, [scale.of(version) for scale, version in zip(self.scales, versions, strict=True)]
            task.tell("judging their labels", min(1.0, done * chunk / len(rows)))


def look_at(task: Task, rows: Tensor, generator: torch.Generator, constants: Constants) -> tuple[list[View], Eyes]:
    """Look at these noisy rows and at the trusted ones, with close neighbours and with whole clusters.

    Walks need no labels: where heads learn from few rows, because there are many classes, they go over others, too.
    """
    appearance = learn_appearance(
        task.noisy_inputs, len(task), task.modality, generator, task.mirrored, constants.appearance
    )
    features = torch.cat(
        [
            appearance.features(task.noisy_inputs, rows, lambda share: task.tell("looking at the inputs", share)),
            appearance.features(task.trusted_inputs, torch.arange(len(task.trusted_labels))),
            appearance.features(task.noisy_inputs, _walked(task, rows, generator, constants.neighbours.most_inside)),
        ]
    )
    versions, walks = smoothed(features, generator, constants.neighbours)
    del features
    shown = len(rows) + len(task.trusted_labels)
    scales = [one_length(version, constants.appearance.length) for version in versions]
    views = [
        View(*scale.of(version, out=version)[:shown].split([len(rows), len(task.trusted_labels)]))
        for scale, version in zip(scales, versions, strict=True)
    ]
    return views, Eyes(appearance, walks, scales)


def _walked(task: Task, rows: Tensor, generator: torch.Generator, most: int) -> Tensor:
    """Return other noisy rows, as many as walks may go over beside these and the trusted ones."""
    missing = most - len(rows) - len(task.trusted_labels)
    if missing <= 0 or len(rows) == len(task):
        return torch.empty(0, dtype=torch.long)
    is_other = torch.ones(len(task), dtype=torch.bool)
    is_other[rows] = False
    others = is_other.nonzero().flatten()
    return others[torch.randperm(len(others), generator=generator)[:missing]].sort().values
