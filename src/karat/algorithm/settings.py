"""The choices of Algorithm 1: one named setting wherever the paper's text and the released code differ."""

from dataclasses import dataclass, replace
from typing import Literal

from karat.errors import UserError, choose


@dataclass(frozen=True)
class AlgorithmSettings:
    """Choices of Algorithm 1.

    Attributes:
        views: K of eq. 3: one weak view and K-1 strong ones.
        temperature: τ of eq. 3; below 1 sharpens the pseudo labels.
        initial_label_trust: λ0; 1 keeps the given label, 0 takes the pseudo label.
        relabelled_weight: weight of L_λ*, the loss of the chosen labels; the paper's is 1. With 0 and
            initial_label_trust 1 there is no re-labeling (ablation M-8).
        mixed_trusted_weight: weight of the mixed trusted examples; the paper's is 1. With 0 and mixed_noisy_weight 0
            there is no L_β (M-6).
        mixed_noisy_weight: p, the weight of the mixed noisy examples in the total loss.
        consistency_weight: k, the weight of the KL consistency loss.
        threshold: T of line 4; an example whose weight is below it takes its pseudo label in the joint
            batch. The weights of a batch sum to 1, so 1 sends (nearly) all there. null: no split, all of them.
        weights_start: "initial" descends from ω0 (text: ω0 − ∇), "zero" takes −∇ alone (released).
        weights_epsilon: added to the sum of the weights when they are normalised (released: 1e-5).
        coefficient_losses: "sum" (text) or "mean" (released) of L_ω* and L_λ*.
        consistency_gradient: "both" sides of the KL (text) or the "augmented" one alone (released).
        normalize_logits: divide logits by their root mean square over the sub-batch before the softmax of
            pseudo labels and of mixed examples (released).
        mixup: factors from the exact Beta(0.5, 0.5) ("beta", text), u²/2 pushed to at least one half
            ("approximate", released), or 1: nothing is mixed ("none", M-9).
        look_ahead_rate: learning rate of the look-ahead step; null is the optimizer's own (text), the
            released code has 0.1.
        trusted_weight_decay: whether weight decay counts in the trusted loss L^p, too (released).
        pseudo_label_gradient: whether gradients flow through the pseudo labels in L_ω*, L_λ* and the
            look-ahead (released; costs one more Jacobian-vector product).
        meta_layers: how many layers, counted from the end, the look-ahead and the meta-gradient know of; null is all of
            them (the paper). 1 is the last layer alone: the cheapest meta step (docs/performance.md).
        derivative: "jvp" (exact), "finite_difference", or "auto": jvp where the model allows it.
    """

    views: int = 2
    temperature: float = 0.5
    initial_label_trust: float = 0.5
    relabelled_weight: float = 1.0
    mixed_trusted_weight: float = 1.0
    mixed_noisy_weight: float = 1.0
    consistency_weight: float = 1.0
    threshold: float | None = 1.0
    weights_start: Literal["initial", "zero"] = "zero"
    weights_epsilon: float = 0.0
    coefficient_losses: Literal["sum", "mean"] = "sum"
    consistency_gradient: Literal["both", "augmented"] = "both"
    normalize_logits: bool = False
    mixup: Literal["beta", "approximate", "none"] = "beta"
    look_ahead_rate: float | None = None
    trusted_weight_decay: bool = False
    pseudo_label_gradient: bool = False
    meta_layers: int | None = None
    derivative: Literal["auto", "jvp", "finite_difference"] = "auto"

    def __post_init__(self) -> None:
        if self.views < 2:
            raise UserError(f"views is {self.views}: pseudo labels need 2 views or more.")
        if not self.temperature > 0:  # also refuses NaN, as below
            raise UserError(f"temperature is {self.temperature}: write a number above 0, such as 0.5.")
        if not 0 <= self.initial_label_trust <= 1:
            raise UserError(f"initial_label_trust is {self.initial_label_trust}: write a number between 0 and 1.")
        if self.meta_layers is not None and self.meta_layers < 1:
            raise UserError(f"meta_layers is {self.meta_layers}: write 1 or more, or null for all layers.")
        weights = ("relabelled_weight", "mixed_trusted_weight", "mixed_noisy_weight", "consistency_weight")
        for name in (*weights, "weights_epsilon"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} is {getattr(self, name)}: write 0 or more.")


_PAPER = AlgorithmSettings(
    initial_label_trust=0.9, mixed_noisy_weight=5.0, consistency_weight=20.0, weights_start="initial"
)

ALGORITHM_PRESETS: dict[str, AlgorithmSettings] = {
    "default": AlgorithmSettings(),
    "paper": _PAPER,
    "released": replace(
        _PAPER,
        threshold=None,
        weights_start="zero",
        weights_epsilon=1e-5,
        coefficient_losses="mean",
        consistency_gradient="augmented",
        normalize_logits=True,
        mixup="approximate",
        look_ahead_rate=0.1,
        trusted_weight_decay=True,
        pseudo_label_gradient=True,
    ),
}


def algorithm_preset(name: str) -> AlgorithmSettings:
    """Return the settings of a preset: `default`, `paper` (the text) or `released` (the authors' code).

    >>> algorithm_preset("paper").consistency_weight
    20.0
    """
    return choose("preset", name, ALGORITHM_PRESETS)
