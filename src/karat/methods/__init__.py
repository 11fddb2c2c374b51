"""Methods: one file each, all with the step signature of `karat.methods.step`.

A method is imported when it is asked for: the names alone, and what can be chosen, load no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from karat.errors import UserError, choose
from karat.methods.settings import MethodSettings

if TYPE_CHECKING:
    from karat.methods.method import Method, Task

METHODS = {  # a step, or a Method that remembers something: the module in this folder, and the name in it
    "supervised": ("supervised", "supervised"),
    "trusted_only": ("trusted_only", "trusted_only"),
    "trusted_finetune": ("trusted_finetune", "TrustedFinetune"),
    "gce": ("gce", "gce"),
    "bootstrap_soft": ("bootstrap", "bootstrap_soft"),
    "bootstrap_hard": ("bootstrap", "bootstrap_hard"),
    "loss_correction": ("loss_correction", "LossCorrection"),
    "glc": ("glc", "GoldLossCorrection"),
    "elr": ("elr", "EarlyLearning"),
    "cleanlab": ("cleanlab", "Cleanlab"),
    "mentornet": ("mentornet", "MentorNet"),
    "rog": ("rog", "RoG"),
    "self_learning": ("self_learning", "SelfLearning"),
    "cleannet": ("cleannet", "CleanNet"),
    "co_teaching": ("co_teaching", "CoTeaching"),
    "incv": ("incv", "Incv"),
    "arazo": ("arazo", "Arazo"),
    "divide_mix": ("divide_mix", "DivideMix"),
    "mixmatch": ("mixmatch", "mixmatch"),
    "mixmatch_kl": ("mixmatch_kl", "mixmatch_kl"),
    "l2r": ("l2r", "l2r"),
    "ieg": ("ieg", "ieg"),
    "karat": ("karat.method", "Karat"),
}

NEEDS_TRUSTED = frozenset(
    {
        *("trusted_only", "trusted_finetune", "glc", "mentornet", "cleannet", "co_teaching"),
        *("mixmatch", "mixmatch_kl", "l2r", "ieg"),
    }
)


def make_method(name: str, task: "Task", settings: Any) -> "Method":
    """Make a method by its name for one run; refuse one that needs trusted examples where a class has none."""
    from karat.methods.method import Method, Plain

    module, found = choose("method", name, METHODS)
    without = task.classes - len(task.trusted_labels.unique())
    if name in NEEDS_TRUSTED and without:
        raise UserError(
            f"Method {name} needs trusted examples of every class, and {without} of {task.classes} classes have none: "
            "verify the rows that `karat suggest DATA` names, or train with --method karat, which does without."
        )
    step_or_kind = getattr(import_module(f"karat.methods.{module}"), found)
    if isinstance(step_or_kind, type) and issubclass(step_or_kind, Method):
        return step_or_kind(task, settings)
    return Plain(step_or_kind, task, settings)


def settings_of(name: str, methods: MethodSettings) -> Any:
    """Return the settings that a method's calls get; None where it has none."""
    choose("method", name, METHODS)
    return getattr(methods, name, None)
