"""The models that a run keeps beside the one that it trains."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from karat.models.average import WeightAverage


class KeptModels:
    """The average of the weights, and what it was at two moments.

    `averaged` follows the trained model. `selected` is the average after the step with the lowest rate, `validated` the
    one that was best on held-out noisy examples; neither counts before it was taken.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self.averaged = WeightAverage(model, decay)
        self.selected = WeightAverage(model, 0.0)
        self.validated = WeightAverage(model, 0.0)
        self.best_validation = -1.0

    def restart(self, model: nn.Module) -> None:
        """Forget the average: the trained model has begun anew."""
        self.averaged = WeightAverage(model, self._decay)

    def select(self) -> None:
        """Take the average as the selected model."""
        self.selected.update(self.averaged.module)

    def validate(self, accuracy: float) -> None:
        """Take the average as the validated model where it is as good as the best on held-out examples."""
        if accuracy >= self.best_validation:
            self.best_validation = accuracy
            self.validated.update(self.averaged.module)

    def by_name(self, trained: nn.Module) -> dict[str, nn.Module]:
        """Return the trained model and those that were taken yet."""
        found = {"selected": self.selected.module} if self.selected.updates else {}
        found |= {"averaged": self.averaged.module, "raw": trained}
        return {**found, "validated": self.validated.module} if self.validated.updates else found

    def state_dict(self) -> dict[str, Any]:
        """Return all averages; as in torch they are the tensors themselves, not copies."""
        parts = {name: getattr(self, name).state_dict() for name in ("averaged", "selected", "validated")}
        return {**parts, "best_validation": self.best_validation}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` returned, in place."""
        for name in ("averaged", "selected", "validated"):
            getattr(self, name).load_state_dict(state[name])
        self.best_validation = state["best_validation"]
