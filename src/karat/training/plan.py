"""What a run does where nobody said: network, length and batch size, from the data and the machine, and why.

The length is reckoned from the multiplications of the network, not measured: the same data on the same kind of machine
always get the same run. It does not depend on the method, so that methods can be compared; `ieg`, which takes longest,
is the measure. On one core of a shared EPYC (torch 2.15, float32) a step of it did 1.0 to 1.4 billion forward
operations a second in `small` (12 to 224 pixels) and `mlp` (768 features), 2.3 to 2.8 in `resnet18` and `wrn-28-2`. A
GPU is taken for a hundred such cores; that is not measured.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from karat.data.modality import modality_of
from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.models import PRETRAINED, SMALL_IMAGE, build_model, has_weights_here
from karat.settings.config import Config

EPOCHS = 60  # where nothing speaks against it; the README's results on digits have it
# More do not help small sets. Wine, 60% symmetric noise, 10 trusted a class, seeds 0 to 2: 98.1, 94.4, 94.4 after 100
# steps; 92.6, 87.0, 87.0 after 1,000. Breast cancer, 40%, seeds 10 to 12: a mean of 89.7 after 300 and after 1,000.
FEWEST_STEPS = 300
FEWEST_EPOCHS = 5  # an example's predictions are averaged over about five epochs, see audit/ledger.py
HOURS = {"cpu": 0.5, "cuda": 3.0}
OPERATIONS_A_SECOND = {"cpu": 1.5e9, "cuda": 1.5e11}
SECONDS_A_STEP = 0.015  # whatever the network: an ieg step of an mlp on 20 vectors
TINY_IMAGE = 16


@dataclass(frozen=True)
class Plan:
    """What was settled: `chosen` names the settings that nobody gave, `reasons` says why, one sentence each.

    `epochs` is None where the number of steps was given.
    """

    model: str
    epochs: int | None
    batch_size: int
    steps: int
    chosen: tuple[str, ...]
    reasons: tuple[str, ...]


def plan(
    shape: tuple[int, ...],
    rows: int,
    classes: int,
    device: str = "cpu",
    cores: int = 1,
    *,
    model: str = "auto",
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
) -> Plan:
    """Settle what is not given for `rows` noisy examples of this shape.

    >>> digits = plan((1, 12, 12), rows=1_200, classes=10)
    >>> digits.model, digits.epochs, digits.batch_size, digits.steps
    ('small', 60, 50, 1440)
    >>> print(plan((13,), rows=109, classes=3).reasons[0])
    Network: mlp, for vectors of 13 features; --model NAME takes another (docs/networks.md).
    """
    if rows < 2:
        raise UserError(f"There is {rows} noisy example, too few for a batch: give at least 2, better hundreds.")
    given = {
        "model": model != "auto",
        "training.epochs": bool(epochs or steps),
        "training.batch_size": bool(batch_size),
    }
    reasons = []
    if not given["model"]:
        model, why = choose_model(shape, device)
        reasons.append(f"Network: {model}, {why}; --model NAME takes another (docs/networks.md).")
        if max(shape[1:], default=0) > SMALL_IMAGE and has_weights_here(model):
            reasons.append(
                f"Pretrained weights of {model} are on this machine: --model {model}{PRETRAINED} starts from them."
            )
    batch_size = min(batch_size or default_batch_size(rows), rows)
    batches = math.ceil(rows / batch_size)
    if not given["training.epochs"]:
        seconds = batches * seconds_a_step(operations(model, shape, classes), batch_size, device, cores)
        epochs, why = choose_epochs(batches, seconds, device)
        reasons.append(
            f"Length: {epochs} epochs of {batches:,} batches of {batch_size}, {why}; --training.epochs N changes it."
        )
    chosen = tuple(name for name, was_given in given.items() if not was_given)
    return Plan(model, epochs, batch_size, steps or (epochs or 0) * batches, chosen, tuple(reasons))


def resolved(config: Config, task: NoisyTask, device: str) -> tuple[Config, Plan]:
    """Return the config with everything settled that was left open, and the plan that did it."""
    training = config.training
    if not task.dataset.curated and (training.batch_size or 0) > len(task.noisy):
        raise UserError(
            f"training.batch_size is {training.batch_size}, and there are {len(task.noisy)} noisy examples: add "
            f"examples, or write --training.batch_size {max(2, len(task.noisy) // 2)}."
        )
    found = plan(
        tuple(task.noisy.inputs.shape[1:]),
        len(task.noisy),
        len(task.dataset.classes),
        device,
        torch.get_num_threads(),
        model=config.model,
        epochs=training.epochs,
        steps=training.steps,
        batch_size=training.batch_size,
    )
    batch_size = training.batch_size or found.batch_size  # a given one stays as it was written
    settled = replace(training, epochs=found.epochs, batch_size=batch_size)
    if task.dataset.image_size is not None:  # what was chosen for this machine holds on every other one
        config = replace(config, data=replace(config.data, image_size=task.dataset.image_size))
        found = replace(found, chosen=(*found.chosen, "data.image_size"))
    return replace(config, model=found.model, training=settled), found


def with_chosen(config: Config, stored: Config, chosen: frozenset[str]) -> Config:
    """Return the config with what is left open taken from a run that was begun, where that run chose it itself."""
    training = config.training
    if config.model == "auto" and "model" in chosen:
        config = replace(config, model=stored.model)
    if training.epochs is None and training.steps is None and "training.epochs" in chosen:
        training = replace(training, epochs=stored.training.epochs)
    if training.batch_size is None and "training.batch_size" in chosen:
        training = replace(training, batch_size=stored.training.batch_size)
    if config.data.image_size is None and "data.image_size" in chosen:
        config = replace(config, data=replace(config.data, image_size=stored.data.image_size))
    return replace(config, training=training)


def choose_model(shape: tuple[int, ...], device: str) -> tuple[str, str]:
    """Return the network for inputs of a shape, and why.

    >>> choose_model((3, 32, 32), "cpu")[0], choose_model((3, 32, 32), "cuda")[0], choose_model((768,), "cpu")[0]
    ('small', 'wrn-28-2', 'mlp-512')
    """
    return DEFAULT_NETWORKS[modality_of(shape).name](shape, device)


def _vector_network(shape: tuple[int, ...], device: str) -> tuple[str, str]:
    return "mlp" if shape[0] <= 256 else "mlp-512", f"for vectors of {shape[0]:,} features"


def _image_network(shape: tuple[int, ...], device: str) -> tuple[str, str]:
    size = f"{shape[1]}x{shape[2]}"
    if max(shape[1:]) <= TINY_IMAGE or (max(shape[1:]) <= SMALL_IMAGE and device == "cpu"):
        return "small", f"for images of {size}{' on a processor' * (device == 'cpu')}"
    if max(shape[1:]) <= SMALL_IMAGE:
        return "wrn-28-2", f"for images of {size} on a GPU"
    if device == "cpu":
        return "resnet18", f"for images of {size}, more than the {SMALL_IMAGE} pixels that small is made for"
    return "resnet-50", f"for images of {size} on a GPU"


DEFAULT_NETWORKS = {"images": _image_network, "vectors": _vector_network}


def default_batch_size(examples: int) -> int:
    """Return 100, or fewer for a small set, so that an epoch has about 24 batches, but 20 at least.

    >>> default_batch_size(50_000), default_batch_size(1_200), default_batch_size(100)
    (100, 50, 20)
    """
    return min(100, max(20, examples // 24))


def choose_epochs(batches: int, seconds: float, device: str) -> tuple[int, str]:
    """Return how many epochs of so many batches and seconds are wise, and why.

    >>> choose_epochs(3, 1.0, "cpu")
    (100, 'because that is 300 steps, the fewest that are enough')
    >>> choose_epochs(24, 3.0, "cpu")
    (60, 'the usual length, roughly 3 minutes here')
    >>> choose_epochs(500, 240.0, "cpu")
    (7, 'roughly 28 minutes here, where the usual 60 would take 4 hours')
    >>> choose_epochs(500, 2400.0, "cpu")
    (5, 'the fewest that tell right from wrong labels, roughly 3.3 hours here (smaller images, --data.limit N or a GPU
    make it shorter)')
    """
    wanted = max(EPOCHS, math.ceil(FEWEST_STEPS / batches))
    affordable = int(3600 * HOURS[device] / seconds)
    if affordable >= wanted:
        why = (
            f"because that is {FEWEST_STEPS:,} steps, the fewest that are enough"
            if wanted > EPOCHS
            else f"the usual length, roughly {_duration(wanted * seconds)} here"
        )
        return wanted, why
    epochs = max(affordable, FEWEST_EPOCHS)
    if affordable < FEWEST_EPOCHS:
        return epochs, (
            f"the fewest that tell right from wrong labels, roughly {_duration(epochs * seconds)} here "
            "(smaller images, --data.limit N or a GPU make it shorter)"
        )
    return epochs, (
        f"roughly {_duration(epochs * seconds)} here, where the usual {wanted} would take {_duration(wanted * seconds)}"
    )


def operations(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return the multiplications and additions of one forward pass of one example; nothing is computed.

    >>> operations("mlp", (13,), classes=3)  # 2·(13·256 + 256·256 + 256·3)
    139264
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = build_model(model.removesuffix(PRETRAINED), shape, classes).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(torch.zeros(1, *shape))
    return int(counter.get_total_flops())


def seconds_a_step(forward_operations: int, batch_size: int, device: str = "cpu", cores: int = 1) -> float:
    """Return roughly how long a step of `ieg` takes; n cores count as n^0.7, because small pieces do not share well.

    >>> round(seconds_a_step(5_370_000, 100), 2)  # `small` at 28x28; measured 0.47
    0.37
    """
    speed = OPERATIONS_A_SECOND[device] * (cores**0.7 if device == "cpu" else 1)
    return SECONDS_A_STEP + batch_size * forward_operations / speed


def _duration(seconds: float) -> str:
    """Write a rough duration.

    >>> _duration(20), _duration(90), _duration(4 * 3600), _duration(100 * 3600)
    ('a minute', '2 minutes', '4 hours', '4.2 days')
    """
    for unit, length in (("days", 86_400), ("hours", 3_600)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}".replace(".0 ", " ")
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes > 1 else "a minute"
