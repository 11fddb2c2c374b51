"""One tree of frozen dataclasses that says everything about a run; the command line is generated from it."""

import math
from dataclasses import asdict, dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from karat.audit.settings import AuditSettings
from karat.data.settings import AugmentationSettings
from karat.data.settings import DataSettings as DataSettings
from karat.data.settings import NoiseSettings as NoiseSettings
from karat.errors import UserError, choose
from karat.methods import METHODS
from karat.methods.settings import MethodSettings

_MAPPINGS = ("noise.class_map", "optimizer.options")  # settings that are mappings: one value, not a section


@dataclass(frozen=True)
class OptimizerSettings:
    """How the parameters are updated.

    Attributes:
        name: auto (muon for the networks `fast`, else sgd), sgd, muon, adam, adamw, nadam, radam, rmsprop, adagrad,
            adamax or adadelta.
        rate: the highest learning rate of the schedule; null is 0.1.
        momentum: of the optimizers that have one: sgd, muon and rmsprop; null is 0.9, and 0.6 of muon.
        nesterov: Nesterov momentum, of sgd; muon always has it.
        weight_decay: as the optimizer defines it; null is 0.0005, and 0.1 of muon (of matrices alone).
        schedule: "cosine", "linear", "cosine_restarts" (the paper's: first cycle one epoch, then 1.5 times longer and
            0.9 times the rate), "steps" or "constant".
        options: further options of the optimizer, by their names in torch, such as {"betas": [0.9, 0.95]} of adam; of
            muon `bias_rate` and `head_rate`, the rates of biases and of the last layer as multiples of the rate.
    """

    name: str = "auto"
    rate: float | None = None
    momentum: float | None = None
    nesterov: bool = False
    weight_decay: float | None = None
    schedule: str = "cosine"
    options: dict[str, Any] | None = None


@dataclass(frozen=True)
class TrainingSettings:
    """How long, in which portions, and where.

    Attributes:
        epochs: passes over the noisy examples, each rounded up to whole batches; null is 60, more where that would be
            fewer than 300 steps, or fewer where it would take very long on this machine.
        steps: number of steps, instead of epochs.
        minutes: about how long the run may take, instead of epochs: the machine's speed is measured, and where the
            model is auto, the widest network is taken that sees small images often enough in that time. null leaves the
            length to the data: half an hour at most without a GPU.
        batch_size: noisy examples in a batch; null is 100, or fewer (20 at least) so that an epoch has 24 batches.
        trusted_batch_size: trusted examples in a batch; null is as many as noisy ones, and a tenth of that (10 at
            least) where method karat learns images.
        pieces: into how many parts a pass of the network is cut to save memory: nothing is kept for the way back, where
            one part after the other is computed again. 1 computes passes again as a whole, with the same result; with
            more, BatchNorm has the statistics of a part. null keeps everything.
        precision: float32, or bfloat16 for the passes of the network: what bears it is computed in half of the memory,
            and faster on a device made for it. Parameters, losses, look-ahead, Jacobian-vector product and optimizer
            stay in float32, and so do evaluation and the saved model.
        compile: whether torch.compile makes code of its own for the passes of the network that are trained; where that
            fails the run says so and goes on without. Look-ahead and Jacobian-vector product are not compiled.
        batch_norm: with several processes, shared has the statistics of the whole batch, as one process would; own has
            those of each process's rows, in fewer messages.
        trusted_balanced: whether a trusted batch holds every class equally often.
        label_smoothing: share of a hard label that goes to all classes, in plain training (supervised, trusted_only,
            trusted_finetune, cleanlab); other methods have losses of their own.
        average_decay: decay of the exponential average of the weights; 0 evaluates the raw weights, null takes the
            method's own: 0.97 for karat on images, 0.99 for all others.
        evaluate_every: epochs between two evaluations.
        checkpoint_every: steps between two checkpoints; null is one epoch, but 50 at least.
        fine_tune: passes over the images in which method karat trains a pretrained network on its verdict, once the
            head is fitted (docs/pretrained.md); 0 leaves the network as it is.
        device: "cpu", "cuda", or "auto": cuda where there is one.
        devices: processes that share the batches of a run, on each machine: one for each GPU, or for some cores. The
            result is that of one process, but for rounding (docs/scale.md).
        nodes: machines, each with as many processes, started by torchrun or SLURM.
        threads: CPU threads; null leaves it to torch.
        deterministic: on a GPU, take only algorithms that give the same bits every time, some of them slower; the CPU
            gives them anyway.
    """

    epochs: int | None = None
    steps: int | None = None
    minutes: float | None = None
    batch_size: int | None = None
    trusted_batch_size: int | None = None
    pieces: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    batch_norm: Literal["shared", "own"] = "shared"
    trusted_balanced: bool = True
    label_smoothing: float = 0.2
    average_decay: float | None = None
    evaluate_every: int = 1
    checkpoint_every: int | None = None
    fine_tune: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int | None = None
    nodes: int = 1
    threads: int | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        # Batches of one example have no BatchNorm statistics.
        lowest = {"epochs": 1, "steps": 1, "batch_size": 2, "trusted_batch_size": 2, "evaluate_every": 1}
        lowest |= {"checkpoint_every": 1, "threads": 1, "fine_tune": 0, "devices": 1, "nodes": 1, "pieces": 1}
        for name, low in lowest.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, Integral):  # from Python: the command line has types
                raise UserError(f"training.{name} is {value!r}: write a whole number.")
            if value is not None and value < low:
                raise UserError(f"training.{name} is {value}: write {low} or more.")
        choose("training.precision", self.precision, dict.fromkeys(("float32", "bfloat16")))
        choose("training.batch_norm", self.batch_norm, dict.fromkeys(("shared", "own")))
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"training.minutes is {self.minutes}: write a number above 0, such as 30.")
        if not 0 <= self.label_smoothing < 1:
            raise UserError(
                f"training.label_smoothing is {self.label_smoothing}: write a share of at least 0 and below 1."
            )
        if self.threads is not None and self.threads > 1024:
            raise UserError(f"training.threads is {self.threads}: write the number of cores to use, at most 1024.")


@dataclass(frozen=True)
class Config:
    """A whole run.

    Attributes:
        method: karat, ieg, l2r, mixmatch_kl, mixmatch, divide_mix, elr, co_teaching, incv, arazo, mentornet, glc,
            loss_correction, gce, bootstrap_soft, bootstrap_hard, self_learning, cleannet, rog, cleanlab, supervised,
            trusted_only or trusted_finetune; docs/methods.md says what each does.
        model: auto (chosen by data and machine), fast, fast-WIDTH, small, mlp, mlp-WIDTH, wrn-DEPTH-WIDTH (such as
            wrn-28-10), resnet-DEPTH (such as resnet-29), vgg-13, densenet-100, resnet-50, inception-resnet-v2, or
            any network of timm by its name, with +pretrained behind it where its weights are in timm's cache;
            hf-hub:OWNER/NAME for one of a hub.
        weights: file with pretrained weights of a network of timm, which model names: safetensors or torch's format
            (docs/pretrained.md).
        seed: of everything random: split, noise, initial weights, order, augmentation.
        data: which examples.
        noise: which label noise to add.
        augmentation: how views are made.
        methods: the choices of each method.
        optimizer: how the parameters are updated.
        training: how long and where.
        audit: how careful the cleaned labels are.
    """

    method: str = "karat"
    model: str = "auto"
    weights: Path | None = None
    seed: int = 0
    data: DataSettings = field(default_factory=DataSettings)
    noise: NoiseSettings = field(default_factory=NoiseSettings)
    augmentation: AugmentationSettings = field(default_factory=AugmentationSettings)
    methods: MethodSettings = field(default_factory=MethodSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS)
        if not 0 <= self.seed < 2**62:
            raise UserError(f"seed is {self.seed}: write a whole number from 0 to 2^62 - 1.")


def config_as_dict(config: Config) -> dict[str, Any]:
    """Return the config as plain values, as they stand in config.yaml."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return str(value) if isinstance(value, Path) else value

    return {key: plain(value) for key, value in asdict(config).items()}


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested dict with dotted keys; a mapping that is a setting itself, such as a class map, is one value.

    >>> flat({"data": {"name": "digits"}, "seed": 0})
    {'data.name': 'digits', 'seed': 0}
    """
    flattened: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and f"{prefix}{key}" not in _MAPPINGS:
            flattened |= flat(value, f"{prefix}{key}.")
        else:
            flattened[f"{prefix}{key}"] = value
    return flattened
