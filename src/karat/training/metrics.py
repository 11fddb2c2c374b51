"""The metrics of an epoch: means over its steps, and the coefficients of right and wrong labels."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from karat.audit.ledger import Ledger
from karat.methods.step import StepResult


class EpochSums:
    """Sums over the steps of an epoch: the terms of the loss, and how often no example got any weight.

    A quantity that only some steps have (another phase, another loss) is averaged over those.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.sums: dict[str, Tensor] = {}

    def add(self, result: StepResult, given_labels: Tensor) -> None:
        """Add a step; agreement with the given labels above their share of right ones is overfitting."""
        found = dict(result.losses)
        if result.logits is not None:
            found["given_label_accuracy"] = (result.logits.argmax(dim=1) == given_labels).float().mean()
        if result.weights is not None:
            found["collapsed_share"] = (result.weights.sum() == 0).float()
        for name, value in found.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value.clone()
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        """Return the mean over the steps."""
        return {name: value.item() / self.counts[name] for name, value in self.sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        return {"counts": dict(self.counts), "sums": dict(self.sums)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with these sums."""
        self.counts, self.sums = dict(state["counts"]), dict(state["sums"])


def coefficient_metrics(ledger: Ledger, mislabelled: Tensor | None) -> dict[str, float]:
    """Return the mean label trust, and both coefficients split by whether the label is right, where known."""
    metrics = {}
    weighed, judged = ~ledger.weight.isnan(), ~ledger.label_trust.isnan()
    if weighed.any():
        metrics["zero_weight_share"] = (ledger.weight[weighed] == 0).float().mean().item()
        if mislabelled is not None:
            total = ledger.weight[weighed].sum().item()
            clean = ledger.weight[weighed & ~mislabelled].sum().item()
            metrics["clean_weight_share"] = clean / total if total else math.nan
    if judged.any():
        metrics["label_trust"] = ledger.label_trust[judged].mean().item()
        if mislabelled is not None:
            metrics["clean_label_trust"] = ledger.label_trust[judged & ~mislabelled].mean().item()
            metrics["mislabelled_label_trust"] = ledger.label_trust[judged & mislabelled].mean().item()
    return metrics
