"""Methods: one file each, all with the step signature of `karat.methods.step`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from karat.algorithm.settings import AlgorithmSettings
from karat.errors import choose
from karat.methods.arazo import Arazo, ArazoSettings
from karat.methods.bootstrap import BootstrapSettings, bootstrap_hard, bootstrap_soft
from karat.methods.cleanlab import Cleanlab, CleanlabSettings
from karat.methods.cleannet import CleanNet, CleanNetSettings
from karat.methods.co_teaching import CoTeaching, CoTeachingSettings
from karat.methods.divide_mix import DivideMix, DivideMixSettings
from karat.methods.elr import EarlyLearning, ElrSettings
from karat.methods.gce import GceSettings, gce
from karat.methods.glc import GlcSettings, GoldLossCorrection
from karat.methods.ieg import ieg
from karat.methods.incv import Incv, IncvSettings
from karat.methods.karat.method import Karat, KaratSettings
from karat.methods.l2r import L2rSettings, l2r
from karat.methods.loss_correction import LossCorrection, LossCorrectionSettings
from karat.methods.mentornet import MentorNet, MentorNetSettings
from karat.methods.method import Method, Plain, Task
from karat.methods.mixmatch import MixMatchSettings, mixmatch
from karat.methods.mixmatch_kl import MixMatchKlSettings, mixmatch_kl
from karat.methods.rog import RoG, RoGSettings
from karat.methods.self_learning import SelfLearning, SelfLearningSettings
from karat.methods.supervised import supervised
from karat.methods.trusted_finetune import TrustedFinetune, TrustedFinetuneSettings
from karat.methods.trusted_only import trusted_only

METHODS: dict[str, Callable[[Task, Any], Method]] = {
    "supervised": partial(Plain, supervised),
    "trusted_only": partial(Plain, trusted_only),
    "trusted_finetune": TrustedFinetune,
    "gce": partial(Plain, gce),
    "bootstrap_soft": partial(Plain, bootstrap_soft),
    "bootstrap_hard": partial(Plain, bootstrap_hard),
    "loss_correction": LossCorrection,
    "glc": GoldLossCorrection,
    "elr": EarlyLearning,
    "cleanlab": Cleanlab,
    "mentornet": MentorNet,
    "rog": RoG,
    "self_learning": SelfLearning,
    "cleannet": CleanNet,
    "co_teaching": CoTeaching,
    "incv": Incv,
    "arazo": Arazo,
    "divide_mix": DivideMix,
    "mixmatch": partial(Plain, mixmatch),
    "mixmatch_kl": partial(Plain, mixmatch_kl),
    "l2r": partial(Plain, l2r),
    "ieg": partial(Plain, ieg),
    "karat": Karat,
}


@dataclass(frozen=True)
class MethodSettings:
    """The settings of the methods that have some.

    Attributes:
        karat: posteriors from a label model on all labels, by appearance and by the network.
        trusted_finetune: plain training, then the trusted examples.
        gce: generalised cross-entropy.
        bootstrap_soft: bootstrapping with predicted probabilities.
        bootstrap_hard: bootstrapping with predicted classes.
        loss_correction: forward correction with an estimated noise matrix.
        glc: gold loss correction, the noise matrix from the trusted examples.
        elr: early-learning regularisation.
        cleanlab: confident learning.
        mentornet: a small network that weights examples by their losses.
        rog: a robust generative classifier in the place of the last layer.
        self_learning: labels corrected by prototypes.
        cleannet: weights by similarity to the trusted examples.
        co_teaching: two networks choose examples for each other.
        incv: noisy cross-validation selects examples for Co-teaching.
        arazo: a beta mixture of the losses and dynamic bootstrapping with mixup (M-DYR-H).
        divide_mix: two networks divide the examples and learn them by MixMatch.
        mixmatch: semi-supervised, with the trusted labels alone.
        mixmatch_kl: the paper's extension of it: consistency between views as a KL divergence.
        l2r: weights by how much an example helps the trusted ones.
        ieg: the paper's Algorithm 1.
    """

    karat: KaratSettings = field(default_factory=KaratSettings)
    trusted_finetune: TrustedFinetuneSettings = field(default_factory=TrustedFinetuneSettings)
    gce: GceSettings = field(default_factory=GceSettings)
    bootstrap_soft: BootstrapSettings = field(default_factory=partial(BootstrapSettings, 0.95))
    bootstrap_hard: BootstrapSettings = field(default_factory=partial(BootstrapSettings, 0.8))
    loss_correction: LossCorrectionSettings = field(default_factory=LossCorrectionSettings)
    glc: GlcSettings = field(default_factory=GlcSettings)
    elr: ElrSettings = field(default_factory=ElrSettings)
    cleanlab: CleanlabSettings = field(default_factory=CleanlabSettings)
    mentornet: MentorNetSettings = field(default_factory=MentorNetSettings)
    rog: RoGSettings = field(default_factory=RoGSettings)
    self_learning: SelfLearningSettings = field(default_factory=SelfLearningSettings)
    cleannet: CleanNetSettings = field(default_factory=CleanNetSettings)
    co_teaching: CoTeachingSettings = field(default_factory=CoTeachingSettings)
    incv: IncvSettings = field(default_factory=IncvSettings)
    arazo: ArazoSettings = field(default_factory=ArazoSettings)
    divide_mix: DivideMixSettings = field(default_factory=DivideMixSettings)
    mixmatch: MixMatchSettings = field(default_factory=MixMatchSettings)
    mixmatch_kl: MixMatchKlSettings = field(default_factory=MixMatchKlSettings)
    l2r: L2rSettings = field(default_factory=L2rSettings)
    ieg: AlgorithmSettings = field(default_factory=AlgorithmSettings)


def make_method(name: str, task: Task, settings: Any) -> Method:
    """Make a method by its name for one run."""
    return choose("method", name, METHODS)(task, settings)


def settings_of(name: str, methods: MethodSettings) -> Any:
    """Return the settings that a method's calls get; None where it has none."""
    choose("method", name, METHODS)
    return getattr(methods, name, None)
