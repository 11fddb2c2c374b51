"""What can be chosen of each method. Nothing here loads torch: the command line says at once what there is."""

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from karat.algorithm.settings import AlgorithmSettings
from karat.errors import UserError


@dataclass(frozen=True)
class KaratSettings:
    """Choices of Karat.

    Attributes:
        rounds: how often two networks of images learn the verdict, each with the labels of one half, and judge the
            other half.
        temperature: below 1 sharpens the posteriors that strong views of vectors learn, where a network is trained.
        mixup: mixup factors are drawn from Beta(a, a) with a this many times the share of wrong labels that were found:
            right labels need no mixing; 0 mixes nothing.
    """

    rounds: int = 2
    temperature: float = 0.5
    mixup: float = 1.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise UserError(f"methods.karat.rounds is {self.rounds}: write 1 or more.")
        if not self.temperature > 0:
            raise UserError(f"methods.karat.temperature is {self.temperature}: write a number above 0.")
        if not self.mixup >= 0:
            raise UserError(f"methods.karat.mixup is {self.mixup}: write 0 or more.")


@dataclass(frozen=True)
class TrustedFinetuneSettings:
    """Choices of fine-tuning.

    Attributes:
        finetune_share: share of the run for the trusted examples.
        rate: learning rate of fine-tuning as a multiple of the run's (digits, 20 epochs, one seed, 80% uniform noise: 1
            gives 90%, 0.1 gives 56%; at 40% noise both 97%).
    """

    finetune_share: float = 0.2
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.finetune_share < 1:
            raise UserError(
                f"methods.trusted_finetune.finetune_share is {self.finetune_share}: write a number between 0 and 1, "
                "such as 0.2."
            )
        if not self.rate > 0:
            raise UserError(f"methods.trusted_finetune.rate is {self.rate}: write a number above 0, such as 1.")


@dataclass(frozen=True)
class GceSettings:
    """Choices of generalised cross-entropy.

    Attributes:
        exponent: q of the loss; near 0 it is cross-entropy, at 1 the mean absolute error. Larger learns slower (their
            paper: 0.7; digits, 20 epochs, one seed, 40% and 80% uniform noise: 0.4 gives 98% and 55%, 0.7 gives 93% and
            26%).
    """

    exponent: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.exponent <= 1:
            raise UserError(f"methods.gce.exponent is {self.exponent}: write a number above 0 and at most 1.")


@dataclass(frozen=True)
class BootstrapSettings:
    """Choices of bootstrapping.

    Attributes:
        label_trust: β, the share of the given label in the target; the rest is the prediction (their paper: 0.95 soft,
            0.8 hard).
    """

    label_trust: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.label_trust <= 1:
            raise UserError(
                f"label_trust of methods.bootstrap_soft or _hard is {self.label_trust}: write a number between 0 and 1."
            )


@dataclass(frozen=True)
class LossCorrectionSettings:
    """Choices of forward loss correction.

    Attributes:
        estimation_share: share of the run for the plain training from which the matrix is estimated (their paper trains
            twice for the full length).
        anchor_rank: place of a class's anchor among its most confident examples, as a share of an average class; 0 is
            the surest of all (their paper: the 97th percentile of all examples on CIFAR-10, which is 0.3, and 0 on
            CIFAR-100; digits, 20 epochs, one seed, 40% uniform noise: 0 gives 90%, 0.3 gives 86%).
    """

    estimation_share: float = 0.4
    anchor_rank: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.estimation_share < 1:
            raise UserError(
                f"methods.loss_correction.estimation_share is {self.estimation_share}: write a number between 0 and 1, "
                "such as 0.4."
            )
        if not 0 <= self.anchor_rank <= 1:
            raise UserError(
                f"methods.loss_correction.anchor_rank is {self.anchor_rank}: write a number between 0 and 1."
            )


@dataclass(frozen=True)
class GlcSettings:
    """Choices of gold loss correction.

    Attributes:
        estimation_share: share of the run for the plain training from which the matrix is measured (their paper trains
            twice for the full length).
        trusted_weight: weight of the trusted examples in the loss; null is their share of all examples, as in their
            paper (digits, 20 epochs, one seed, 80% uniform noise: 0.5 gives 86%, null 51%; at 40% noise 97% and 94%).
    """

    estimation_share: float = 0.4
    trusted_weight: float | None = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.estimation_share < 1:
            raise UserError(
                f"methods.glc.estimation_share is {self.estimation_share}: write a number between 0 and 1, such as 0.4."
            )
        if self.trusted_weight is not None and not 0 <= self.trusted_weight <= 1:
            raise UserError(
                f"methods.glc.trusted_weight is {self.trusted_weight}: write a number between 0 and 1, or null."
            )


@dataclass(frozen=True)
class ElrSettings:
    """Choices of early-learning regularisation.

    Attributes:
        memory: β, the share of the old target when an example is seen again (their paper: 0.7 on CIFAR-10, 0.9 on
            CIFAR-100).
        weight: λ, the weight of the regulariser (their paper: 3 on CIFAR-10, 7 on CIFAR-100).
    """

    memory: float = 0.7
    weight: float = 3.0

    def __post_init__(self) -> None:
        if not 0 <= self.memory < 1:
            raise UserError(f"methods.elr.memory is {self.memory}: write a number of at least 0 and below 1.")
        if not self.weight >= 0:
            raise UserError(f"methods.elr.weight is {self.weight}: write 0 or more.")


@dataclass(frozen=True)
class CleanlabSettings:
    """Choices of confident learning.

    Attributes:
        folds: number of parts of cross-validation (their paper: 4 on CIFAR-10).
        fold_share: share of the run for the network of each part (their paper trains each for the full length).
    """

    folds: int = 3
    fold_share: float = 0.15

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise UserError(f"methods.cleanlab.folds is {self.folds}: write 2 or more.")
        if not 0 < self.fold_share * self.folds < 1:
            raise UserError(
                f"methods.cleanlab.fold_share is {self.fold_share}: write a number above 0 that leaves some of the "
                f"run for the last training, below {1 / self.folds:.3g} with {self.folds} folds."
            )


@dataclass(frozen=True)
class MentorNetSettings:
    """Choices of MentorNet.

    Attributes:
        burn_in: share of the run in which every example counts fully (paper: 0.2).
        percentile: the loss that an example's loss is compared with, as a share of the batch's losses below it.
        percentile_decay: decay of that loss's moving average.
        rate: learning rate of the mentor, which Adam trains.
    """

    burn_in: float = 0.2
    percentile: float = 0.75
    percentile_decay: float = 0.95
    # digits, 80% redrawn, 20 epochs, seed 11: 74.5% with 0.01, 67.4% with 0.003, 65.6% with 0.03 (plain training:
    # 67.2%); with 40% redrawn 96.8%, 97.4% and 96.2% (plain: 95.8%)
    rate: float = 0.01

    def __post_init__(self) -> None:
        for name in ("burn_in", "percentile", "percentile_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"methods.mentornet.{name} is {getattr(self, name)}: write a number from 0 to 1, 1 excluded."
                )
        if not self.rate > 0:
            raise UserError(f"methods.mentornet.rate is {self.rate}: write a number above 0, such as 0.01.")


@dataclass(frozen=True)
class RoGSettings:
    """Choices of RoG.

    Attributes:
        kept: share of a class's examples that its mean and covariance are computed from; the others are outliers
            (the paper: one half, and half the number of features more).
    """

    kept: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.kept <= 1:
            raise UserError(f"methods.rog.kept is {self.kept}: write a share of the examples, such as 0.5.")


@dataclass(frozen=True)
class SelfLearningSettings:
    """Choices of deep self-learning.

    Attributes:
        warm_up: share of the run before the labels are corrected (the paper starts from a pretrained network).
        corrected_weight: α, the weight of the corrected label; the given one has 1 − α.
        prototypes: p, how many examples stand for a class.
        sample: m, how many random examples of a class the prototypes are chosen from (paper: 1280).
    """

    # digits, 40% redrawn, 20 epochs, seed 11: 97.2% with 0.4, 96.2% with 0.2, 97.0% with 0.6 (plain training: 95.8%);
    # with 80% redrawn 51.5%, 36.0% and 42.1% (plain: 67.2%): there the corrected labels are mostly wrong
    warm_up: float = 0.4
    corrected_weight: float = 0.5
    prototypes: int = 8
    sample: int = 320

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up <= 1:
            raise UserError(f"methods.self_learning.warm_up is {self.warm_up}: write a share of the run, such as 0.4.")
        if not 0 <= self.corrected_weight <= 1:
            raise UserError(
                f"methods.self_learning.corrected_weight is {self.corrected_weight}: write a number between 0 and 1."
            )
        for name in ("prototypes", "sample"):
            if getattr(self, name) < 1:
                raise UserError(f"methods.self_learning.{name} is {getattr(self, name)}: write 1 or more.")


@dataclass(frozen=True)
class CleanNetSettings:
    """Choices of the CleanNet-style method.

    Attributes:
        warm_up: share of the run in which all examples count the same (the paper starts from a trained classifier).
    """

    # digits, 80% redrawn, 20 epochs, seed 11: 71.8% with 0.4, 63.6% with 0.2, 65.2% with 0.6 (plain training: 67.2%);
    # with 40% redrawn all are within a point of 97%
    warm_up: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < 1:
            raise UserError(f"methods.cleannet.warm_up is {self.warm_up}: write a share of the run, such as 0.4.")


@dataclass(frozen=True)
class CoTeachingSettings:
    """Choices of Co-teaching.

    Attributes:
        forget_rate: τ, the share of every batch that is left out in the end. The paper gives the true noise
            rate; null estimates it after a warm-up, from how often the networks predict given and trusted labels.
        ramp: share of the run over which the forgotten share rises from 0 to τ (paper: 10 of 200 epochs).
        warm_up: share of the run before that in which nothing is forgotten; 0 where forget_rate is given.
    """

    forget_rate: float | None = None
    ramp: float = 0.1
    warm_up: float = 0.4

    def __post_init__(self) -> None:
        if self.forget_rate is not None and not 0 <= self.forget_rate < 1:
            raise UserError(
                f"methods.co_teaching.forget_rate is {self.forget_rate}: write a number from 0 to below 1, or null."
            )
        for name in ("ramp", "warm_up"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"methods.co_teaching.{name} is {getattr(self, name)}: write a number between 0 and 1.")


@dataclass(frozen=True)
class IncvSettings:
    """Choices of INCV.

    Attributes:
        rounds: how often the candidates are split in two halves that judge each other (paper: 4).
        fold_share: share of the run that training on one half takes (paper: 50 epochs, beside 200 for the rest).
        remove: whether the candidates with the largest losses are removed (paper: for symmetric noise only).
        ramp: share of the last part over which Co-teaching's forgotten share rises (paper: 10 of 200 epochs).
        candidates_after: share of the last part after which the candidates left over join the selected examples
            (paper: 40 of 200 epochs, 80 where more than 60% of the labels are wrong).
    """

    rounds: int = 1
    fold_share: float = 0.25
    remove: bool = True
    ramp: float = 0.05
    candidates_after: float = 0.2

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise UserError(f"methods.incv.rounds is {self.rounds}: write 1 or more.")
        if not 0 < self.fold_share * 2 * self.rounds < 1:
            raise UserError(
                f"methods.incv.fold_share is {self.fold_share}: {2 * self.rounds} halves must leave steps for the "
                f"rest; write a number above 0 and below {1 / (2 * self.rounds):.3g}."
            )
        for name in ("ramp", "candidates_after"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"methods.incv.{name} is {getattr(self, name)}: write a number between 0 and 1.")


@dataclass(frozen=True)
class ArazoSettings:
    """Choices of M-DYR-H.

    Attributes:
        warm_up: share of the run with mixup alone, before the losses are modelled (paper: 105 of 300 epochs).
        mixup: a of the mixup factors' Beta(a, a) (paper: 32, which mixes all pairs by halves and learns slowly).
        prior_weight: weight of the penalty that pulls the mean prediction to equal shares of all classes (paper: 1).
    """

    warm_up: float = 0.6
    mixup: float = 1.0
    prior_weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up <= 1:
            raise UserError(f"methods.arazo.warm_up is {self.warm_up}: write a number between 0 and 1.")
        if not self.mixup > 0:
            raise UserError(f"methods.arazo.mixup is {self.mixup}: write a number above 0, such as 1.")
        if not self.prior_weight >= 0:
            raise UserError(f"methods.arazo.prior_weight is {self.prior_weight}: write 0 or more.")


@dataclass(frozen=True)
class DivideMixSettings:
    """Choices of DivideMix.

    Attributes:
        warm_up: share of the run with plain cross-entropy (paper: 10 to 30 of 300 epochs).
        entropy_penalty: whether confident predictions cost in the warm-up (paper: for asymmetric noise).
        threshold: an example is labelled if its label is right with a higher probability (paper: 0.5, or 0.6).
        temperature: below 1 sharpens the targets.
        mixup: a of the mixup factors' Beta(a, a).
        guessed_weight: λ_u, the weight of the guessed labels (paper: 0 to 150, more for more noise).
        ramp: share of the run, after the warm-up, over which that weight rises (paper: 16 of 300 epochs).
    """

    warm_up: float = 0.4
    entropy_penalty: bool = False
    threshold: float = 0.5
    temperature: float = 0.5
    mixup: float = 4.0
    guessed_weight: float = 25.0
    ramp: float = 0.1

    def __post_init__(self) -> None:
        for name in ("warm_up", "threshold", "ramp"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"methods.divide_mix.{name} is {getattr(self, name)}: write a number between 0 and 1.")
        for name in ("temperature", "mixup"):
            if not getattr(self, name) > 0:
                raise UserError(f"methods.divide_mix.{name} is {getattr(self, name)}: write a number above 0.")
        if not self.guessed_weight >= 0:
            raise UserError(f"methods.divide_mix.guessed_weight is {self.guessed_weight}: write 0 or more.")


@dataclass(frozen=True)
class MixMatchSettings:
    """Choices of MixMatch.

    Attributes:
        views: K, how many weak views of an unlabelled example its guessed label averages.
        temperature: below 1 sharpens the guessed labels.
        mixup: a of the mixup factors' Beta(a, a).
        guessed_weight: λ_u, the weight of the guessed labels.
        ramp: share of the run over which that weight rises from 0 (paper: 16 of 1,024 epochs).
    """

    views: int = 2
    temperature: float = 0.5
    mixup: float = 0.75
    guessed_weight: float = 75.0
    ramp: float = 0.4

    def __post_init__(self) -> None:
        if self.views < 1:
            raise UserError(f"methods.mixmatch.views is {self.views}: write 1 or more.")
        for name in ("temperature", "mixup"):
            if not getattr(self, name) > 0:
                raise UserError(f"methods.mixmatch.{name} is {getattr(self, name)}: write a number above 0.")
        if not self.guessed_weight >= 0:
            raise UserError(f"methods.mixmatch.guessed_weight is {self.guessed_weight}: write 0 or more.")
        if not 0 <= self.ramp <= 1:
            raise UserError(f"methods.mixmatch.ramp is {self.ramp}: write a number between 0 and 1.")


@dataclass(frozen=True)
class MixMatchKlSettings:
    """Choices of MixMatch-KL, as in Algorithm 1.

    Attributes:
        views: K of eq. 3: one weak view and K-1 strong ones.
        temperature: τ of eq. 3; below 1 sharpens the pseudo labels.
        mixed_noisy_weight: p, the weight of the mixed noisy examples in the total loss.
        consistency_weight: k, the weight of the KL consistency loss.
        normalize_logits: divide logits by their root mean square over the sub-batch before the softmax of pseudo
            labels and of mixed examples.
        mixup: factors from the exact Beta(0.5, 0.5) ("beta"), u²/2 pushed to at least one half ("approximate"), or 1:
            nothing is mixed ("none").
    """

    views: int = 2
    temperature: float = 0.5
    mixed_noisy_weight: float = 1.0
    consistency_weight: float = 1.0
    normalize_logits: bool = False
    mixup: Literal["beta", "approximate", "none"] = "beta"

    def __post_init__(self) -> None:
        if self.views < 2:
            raise UserError(f"methods.mixmatch_kl.views is {self.views}: pseudo labels need 2 views or more.")
        if not self.temperature > 0:
            raise UserError(f"methods.mixmatch_kl.temperature is {self.temperature}: write a number above 0.")
        for name in ("mixed_noisy_weight", "consistency_weight"):
            if not getattr(self, name) >= 0:
                raise UserError(f"methods.mixmatch_kl.{name} is {getattr(self, name)}: write 0 or more.")


@dataclass(frozen=True)
class L2rSettings:
    """Choices of Learning to Reweight.

    Attributes:
        weights_epsilon: added to the sum of the weights when they are normalised.
        meta_layers: how many layers, counted from the end, the meta-gradient knows of; null is all of them. 1 is the
            last layer alone: the cheapest meta step (docs/performance.md).
        derivative: "jvp" (exact), "finite_difference", or "auto": jvp where the model allows it.
    """

    weights_epsilon: float = 0.0
    meta_layers: int | None = None
    derivative: Literal["auto", "jvp", "finite_difference"] = "auto"

    def __post_init__(self) -> None:
        if not self.weights_epsilon >= 0:
            raise UserError(f"methods.l2r.weights_epsilon is {self.weights_epsilon}: write 0 or more.")
        if self.meta_layers is not None and self.meta_layers < 1:
            raise UserError(f"methods.l2r.meta_layers is {self.meta_layers}: write 1 or more, or null for all layers.")


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
