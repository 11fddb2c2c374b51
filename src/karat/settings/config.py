"""One tree of frozen dataclasses that says everything about a run; the command line is generated from it."""

from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from karat.algorithm.settings import ALGORITHM_PRESETS, AlgorithmSettings
from karat.data.augmentation import AugmentationSettings
from karat.data.settings import DataSettings as DataSettings
from karat.data.settings import NoiseSettings as NoiseSettings
from karat.errors import UserError, choose
from karat.methods import MethodSettings

MOMENTUM_OPTIMIZERS = ("sgd", "rmsprop")
# The methods that read settings of Algorithm 1, and which.
_READ_OF_ALGORITHM: dict[str, tuple[str, ...]] = {
    "ieg": tuple(setting.name for setting in fields(AlgorithmSettings)),
    "l2r": ("weights_epsilon", "derivative"),
    "mixmatch_kl": (
        "views",
        "temperature",
        "mixed_noisy_weight",
        "consistency_weight",
        "normalize_logits",
        "mixup",
    ),
}


@dataclass(frozen=True)
class OptimizerSettings:
    """How the parameters are updated.

    Attributes:
        name: sgd, adam, adamw, nadam, radam, rmsprop, adagrad, adamax or adadelta.
        rate: the highest learning rate of the schedule.
        momentum: of sgd and rmsprop.
        nesterov: Nesterov momentum, of sgd.
        weight_decay: as the optimizer defines it.
        schedule: "cosine", "cosine_restarts" (the paper's: first cycle one epoch, then 1.5 times longer and 0.9 times
            the rate), "steps" or "constant".
    """

    name: str = "sgd"
    rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: str = "cosine"


@dataclass(frozen=True)
class TrainingSettings:
    """How long, in which portions, and where.

    Attributes:
        epochs: passes over the noisy examples, each rounded up to whole batches; null is 60, more where that would be
            fewer than 300 steps, or fewer where it would take very long on this machine.
        steps: number of steps, instead of epochs.
        batch_size: noisy examples in a batch; null is 100, or fewer (20 at least) so that an epoch has 24 batches.
        trusted_batch_size: trusted examples in a batch; null is as many as noisy ones.
        trusted_balanced: whether a trusted batch holds every class equally often.
        average_decay: decay of the exponential average of the weights; 0 evaluates the raw weights.
        evaluate_every: epochs between two evaluations.
        checkpoint_every: steps between two checkpoints; null is one epoch, but 50 at least.
        device: "cpu", "cuda", or "auto": cuda where there is one.
        threads: CPU threads; null leaves it to torch.
    """

    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    trusted_batch_size: int | None = None
    trusted_balanced: bool = True
    average_decay: float = 0.99
    evaluate_every: int = 1
    checkpoint_every: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        # Batches of one example have no BatchNorm statistics.
        lowest = {"epochs": 1, "steps": 1, "batch_size": 2, "trusted_batch_size": 2, "evaluate_every": 1}
        for name, low in {**lowest, "checkpoint_every": 1, "threads": 1}.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, Integral):  # from Python: the command line has types
                raise UserError(f"training.{name} is {value!r}: write a whole number.")
            if value is not None and value < low:
                raise UserError(f"training.{name} is {value}: write {low} or more.")
        if self.threads is not None and self.threads > 1024:
            raise UserError(f"training.threads is {self.threads}: write the number of cores to use, at most 1024.")


@dataclass(frozen=True)
class Config:
    """A whole run.

    Attributes:
        method: karat, ieg, l2r, mixmatch_kl, mixmatch, divide_mix, elr, co_teaching, incv, arazo, mentornet, glc,
            loss_correction, gce, bootstrap_soft, bootstrap_hard, self_learning, cleannet, rog, cleanlab, supervised,
            trusted_only or trusted_finetune; docs/methods.md says what each does.
        model: auto (chosen by data and machine), small, mlp, mlp-WIDTH, wrn-DEPTH-WIDTH (such as wrn-28-10),
            resnet-DEPTH (such as resnet-29), vgg-13, densenet-100, resnet-50, inception-resnet-v2, or any network of
            timm by its name.
        seed: of everything random: split, noise, initial weights, order, augmentation.
        data: which examples.
        noise: which label noise to add.
        augmentation: how views are made.
        algorithm: the choices of Algorithm 1.
        methods: the choices of the other methods.
        optimizer: how the parameters are updated.
        training: how long and where.
    """

    method: str = "karat"
    model: str = "auto"
    seed: int = 0
    data: DataSettings = field(default_factory=DataSettings)
    noise: NoiseSettings = field(default_factory=NoiseSettings)
    augmentation: AugmentationSettings = field(default_factory=AugmentationSettings)
    algorithm: AlgorithmSettings = field(default_factory=AlgorithmSettings)
    methods: MethodSettings = field(default_factory=MethodSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**62:
            raise UserError(f"seed is {self.seed}: write a whole number from 0 to 2^62 - 1.")


# Budget, data and network are the user's in every preset. The text gives no average of weights; the released code
# evaluates one with decay 0.999.
_PAPER = Config(
    method="ieg",
    algorithm=ALGORITHM_PRESETS["paper"],
    augmentation=AugmentationSettings(policy="autoaugment"),
    optimizer=OptimizerSettings(schedule="cosine_restarts"),
    training=TrainingSettings(epochs=60, batch_size=100, average_decay=0.0),
)
PRESETS: dict[str, Config] = {
    "default": Config(),
    "paper": _PAPER,
    "released": Config(
        method="ieg",
        algorithm=ALGORITHM_PRESETS["released"],
        augmentation=_PAPER.augmentation,
        optimizer=_PAPER.optimizer,
        training=TrainingSettings(epochs=60, batch_size=100, average_decay=0.999),
    ),
}


def preset(name: str) -> Config:
    """Return a preset: `default`, `paper` (the text) or `released` (the authors' code).

    >>> preset("released").training.average_decay
    0.999
    """
    return choose("preset", name, PRESETS)


def config_as_dict(config: Config) -> dict[str, Any]:
    """Return the config as plain values, as they stand in config.yaml."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return str(value) if isinstance(value, Path) else value

    return {key: plain(value) for key, value in asdict(config).items()}


def unread_settings(config: Config) -> list[str]:
    """Say which settings were changed that method and optimizer do not read, a sentence each.

    >>> unread_settings(Config(method="gce", algorithm=AlgorithmSettings(temperature=0.3)))
    ['Method gce does not read algorithm.temperature: its own are methods.gce.']
    >>> unread_settings(Config(optimizer=OptimizerSettings("adam", momentum=0.5)))
    ['Optimizer adam does not read optimizer.momentum: sgd and rmsprop do.']
    """
    sentences = []
    method, usual = str(config.method), flat(asdict(Config()))  # no method at all is said later
    changed = [name for name, value in flat(asdict(config)).items() if value != usual[name]]
    read = {f"algorithm.{name}" for name in _READ_OF_ALGORITHM.get(method, ())}
    unread = [
        name
        for name in changed
        if name.startswith(("algorithm.", "methods."))
        and name not in read
        and not name.startswith(f"methods.{method}.")
    ]
    if unread:
        more = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
        remedy = f"its own are methods.{method}" if hasattr(config.methods, method) else "leave out what it ignores"
        sentences.append(f"Method {method} does not read {', '.join(unread[:3])}{more}: {remedy}.")
    if "optimizer.momentum" in changed and config.optimizer.name not in MOMENTUM_OPTIMIZERS:
        sentences.append(f"Optimizer {config.optimizer.name} does not read optimizer.momentum: sgd and rmsprop do.")
    return sentences


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested dict with dotted keys; a class map is one value.

    >>> flat({"data": {"name": "digits"}, "seed": 0})
    {'data.name': 'digits', 'seed': 0}
    """
    flattened: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and key.split(".")[-1] != "class_map":
            flattened |= flat(value, f"{prefix}{key}.")
        else:
            flattened[f"{prefix}{key}"] = value
    return flattened
