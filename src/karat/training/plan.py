"""What a run does where nobody said: network, length and batch size, from the data and the machine, and why.

Where no time is asked for, the length is reckoned from the multiplications of the network, not measured: the same data
on the same kind of machine always get the same run. Where `training.minutes` asks for one, the speed of this machine is
measured, and the widest network is taken that sees the data often enough in that time; config.yaml keeps what was
chosen, so that a resumed or repeated run has it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from karat.data.modality import modality_of
from karat.data.task import NoisyTask
from karat.errors import UserError
from karat.models import FAST_WIDTH, LINEAR, PRETRAINED, SMALL_IMAGE, SMALLEST_IMAGE
from karat.settings.config import Config
from karat.training.optimizers import settled, settled_for_pretrained
from karat.training.speed import COSTS, OF_FAST, measured_seconds, operations, seconds_a_step

EPOCHS = 60  # where nothing speaks against it; the README's results on digits have it
# More do not help small sets. Wine, 60% symmetric noise, 10 trusted a class, seeds 0 to 2: 98.1, 94.4, 94.4 after 100
# steps; 92.6, 87.0, 87.0 after 1,000. Breast cancer, 40%, seeds 10 to 12: a mean of 89.7 after 300 and after 1,000.
FEWEST_STEPS = 300
FEWEST_EPOCHS = 5  # an example's predictions are averaged over about five epochs, see audit/ledger.py
MINUTES = {"cpu": 30.0, "cuda": 180.0}
OF_STEPS = 0.8  # of the time that is asked for; the rest is for evaluation and the work between steps
WIDTHS = (64, 32, 16, 8)  # of `fast`, from which one is taken for the time that is asked for
USUAL_WIDTHS = (32, 16)  # and where nobody asks for one
ENOUGH_EPOCHS = 12  # passes that a wider network should have
ENOUGH_STEPS = 1_000  # where nobody asks for a time
# Examples. CIFAR-10, 40% uniform noise, method karat: fast-16 and fast-32 have 61.6 and 56.6 with 2,000 images, 75.6
# and 79.1 with 10,000 (raw weights).
ENOUGH_ROWS = 5_000
TINY_IMAGE = 16
FITTING = "karat"  # the method that can fit a linear classifier
_FITTED = ("model", "training.epochs", "training.batch_size")
FITTED_AT_ONCE = 5_000  # rows whose findings are entered at once where nothing is trained


WITHOUT_WEIGHTS = (
    "No pretrained network is on this machine: with one, labels are judged by its features, and nothing is trained: "
    f"--model timm:resnet50{PRETRAINED} --data.download true, or --weights FILE (docs/pretrained.md)."
)


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
    minutes: float | None = None,
    method: str = "ieg",
    measure: Callable[[str, int], float] | None = None,
    encoder: str | None = None,
    fine_tuned: bool = False,
) -> Plan:
    """Settle what is not given for `rows` noisy examples of this shape.

    `measure` returns how long a step of plain training of a network takes with batches of a size; it is called where
    `minutes` are given. Method karat fits a linear classifier of texts and of vectors to its verdict: then nothing is
    trained. `encoder` is the pretrained network that made the vectors of images, `fine_tuned`: it is trained, too.

    >>> digits = plan((1, 12, 12), rows=1_200, classes=10)
    >>> digits.model, digits.epochs, digits.batch_size, digits.steps
    ('fast', 60, 50, 1440)
    >>> print(plan((13,), rows=109, classes=3).reasons[0])
    Network: mlp, for vectors of 13 features; --model NAME takes another (docs/networks.md).
    """
    if rows < 2:
        raise UserError(f"There is {rows} noisy example, too few for a batch: give at least 2, better hundreds.")
    unasked = model == "auto" and method == FITTING and len(shape) == 1
    if encoder is not None:
        size = min(FITTED_AT_ONCE, rows)
        why = f"Network: {encoder}, pretrained; a linear head is fitted to the verdict on its {shape[0]:,} features."
        if not fine_tuned:
            why += " --training.fine_tune 1 trains all of it, too: more accurate, and slower (docs/pretrained.md)."
        return Plan(encoder, 1, size, math.ceil(rows / size), _FITTED[not unasked :], (why,))
    if unasked or is_fitted(method, model):
        size = min(FITTED_AT_ONCE, rows)
        why = (
            f"Network: {LINEAR}, fitted to the verdict on the labels by their {shape[0]:,} features, without training; "
            "--model mlp-512 trains a network."
        )
        return Plan(LINEAR, 1, size, math.ceil(rows / size), _FITTED[not unasked :], (why,) * unasked)
    given = {
        "model": model != "auto",
        "training.epochs": bool(epochs or steps),
        "training.batch_size": bool(batch_size),
    }
    reasons = []
    batch_size = min(batch_size or default_batch_size(rows), rows)
    batches = math.ceil(rows / batch_size)
    cost = COSTS.get(method, 1.0)

    def seconds_of(model: str) -> float:
        """Return how long the steps of an epoch take: measured where a time is asked for, else reckoned."""
        if minutes is not None and measure is not None:
            return batches * cost * measure(model, batch_size)
        reckoned = operations(model, shape, classes) / (OF_FAST if model.startswith("fast") else 1)
        return batches * seconds_a_step(reckoned, batch_size, device, cores, cost)

    if not given["model"]:
        model, why = choose_model(shape, device)
        passes = steps / batches if steps else epochs
        if minutes is not None and model.startswith("fast"):
            model, why = choose_width(60 * OF_STEPS * minutes, passes, seconds_of, _worth(WIDTHS, rows))
        elif model == "fast" and max(shape[1:]) > TINY_IMAGE and (passes is None or passes * batches >= ENOUGH_STEPS):
            model, why = choose_width(60 * MINUTES[device], passes, seconds_of, _worth(USUAL_WIDTHS, rows))
        reasons.append(f"Network: {model}, {why}; --model NAME takes another (docs/networks.md).")
    if not given["training.epochs"]:
        epochs, why = choose_epochs(
            batches, seconds_of(model), MINUTES[device] if minutes is None else minutes, asked=minutes is not None
        )
        reasons.append(
            f"Length: {epochs} epoch{'s' * (epochs != 1)} of {batches:,} batches of {batch_size}, {why}; "
            "--training.epochs N changes it."
        )
    if not given["model"] and method == FITTING and shape[0] == 3 and max(shape[1:], default=0) > TINY_IMAGE:
        reasons.append(WITHOUT_WEIGHTS)
    chosen = tuple(name for name, was_given in given.items() if not was_given)
    return Plan(model, epochs, batch_size, steps or (epochs or 0) * batches, chosen, tuple(reasons))


def resolved(config: Config, task: NoisyTask, device: str, processes: int = 1) -> tuple[Config, Plan]:
    """Return the config with everything settled that was left open, and the plan that did it.

    `processes` share every batch: each measures its part of it, and all have as many threads.
    """
    training = config.training
    if not task.dataset.curated and (training.batch_size or 0) > len(task.noisy):
        raise UserError(
            f"training.batch_size is {training.batch_size}, and there are {len(task.noisy)} noisy examples: add "
            f"examples, or write --training.batch_size {max(2, len(task.noisy) // 2)}."
        )
    shape, classes = tuple(task.noisy.inputs.shape[1:]), len(task.dataset.classes)
    found = plan(
        shape,
        len(task.noisy),
        classes,
        device,
        torch.get_num_threads() * processes,
        model=config.model,
        epochs=training.epochs,
        steps=training.steps,
        batch_size=training.batch_size,
        minutes=training.minutes,
        method=config.method,
        measure=lambda model, batch: measured_seconds(
            shape, classes, device, model, max(2, batch // processes), training.precision
        ),
        encoder=None if task.origin is None else task.origin.model,
        fine_tuned=bool(training.fine_tune),
    )
    if is_fitted(config.method, found.model) or task.origin is not None:
        # What was fitted is kept as it is: no average over steps.
        training = replace(training, steps=None, batch_size=found.batch_size, average_decay=0.0)
    batch_size = training.batch_size or found.batch_size  # a given one stays as it was written
    known = task.origin is not None
    optimizer = settled_for_pretrained(config.optimizer) if known else settled(config.optimizer, found.model)
    chosen = [
        f"optimizer.{name}"
        for name in ("name", "rate", "momentum", "weight_decay")
        if _is_open(getattr(config.optimizer, name))
    ]
    config = replace(
        config,
        model=found.model,
        optimizer=optimizer,
        training=replace(training, epochs=found.epochs, batch_size=batch_size),
    )
    if task.dataset.image_size is not None:  # what was chosen for this machine holds on every other one
        config = replace(config, data=replace(config.data, image_size=task.dataset.image_size))
        chosen.append("data.image_size")
    return config, replace(found, chosen=(*found.chosen, *chosen))


def is_fitted(method: str, model: str) -> bool:
    """Return whether the method fits this classifier, so that no step trains it.

    >>> is_fitted("karat", "linear"), is_fitted("gce", "linear"), is_fitted("karat", "mlp")
    (True, False, False)
    """
    return method == FITTING and model == LINEAR


def with_chosen(config: Config, stored: Config, chosen: frozenset[str]) -> Config:
    """Return the config with what is left open taken from a run that was begun, where that run chose it itself."""
    for name in chosen:
        if name == "training.epochs" and config.training.steps is not None:
            continue
        if name == "model":
            config = replace(config, model=stored.model if config.model == "auto" else config.model)
            continue
        section, setting = name.split(".")
        part = getattr(config, section)
        if _is_open(getattr(part, setting)):
            value = getattr(getattr(stored, section), setting)
            config = replace(config, **{section: replace(part, **{setting: value})})
    return config


def _is_open(value: Any) -> bool:
    return value is None or value == "auto"


def choose_model(shape: tuple[int, ...], device: str) -> tuple[str, str]:
    """Return the network for inputs of a shape, and why.

    >>> choose_model((3, 32, 32), "cpu")[0], choose_model((3, 32, 32), "cuda")[0], choose_model((768,), "cpu")[0]
    ('fast', 'fast-64', 'mlp-512')
    """
    return DEFAULT_NETWORKS[modality_of(shape).name](shape, device)


def _vector_network(shape: tuple[int, ...], device: str) -> tuple[str, str]:
    return "mlp" if shape[0] <= 256 else "mlp-512", f"for vectors of {shape[0]:,} features"


def _image_network(shape: tuple[int, ...], device: str) -> tuple[str, str]:
    size = f"{shape[1]}x{shape[2]}"
    if min(shape[1:]) < SMALLEST_IMAGE and max(shape[1:]) <= SMALL_IMAGE:
        return "small", f"for images of {size}, fewer than the {SMALLEST_IMAGE} pixels that fast is made for"
    if max(shape[1:]) <= TINY_IMAGE or (max(shape[1:]) <= SMALL_IMAGE and device == "cpu"):
        return "fast", f"for images of {size}{' on a processor' * (device == 'cpu')}"
    if max(shape[1:]) <= SMALL_IMAGE:
        return "fast-64", f"for images of {size} on a GPU"
    if device == "cpu":
        return "resnet18", f"for images of {size}, more than the {SMALL_IMAGE} pixels that fast is made for"
    return "resnet-50", f"for images of {size} on a GPU"


DEFAULT_NETWORKS = {"images": _image_network, "vectors": _vector_network}


def default_batch_size(examples: int) -> int:
    """Return 100, or fewer for a small set, so that an epoch has about 24 batches, but 20 at least.

    >>> default_batch_size(50_000), default_batch_size(1_200), default_batch_size(100)
    (100, 50, 20)
    """
    return min(100, max(20, examples // 24))


def _worth(widths: Sequence[int], rows: int) -> tuple[int, ...]:
    """Return the widths that so many examples can teach.

    >>> _worth(WIDTHS, 2_000), _worth(USUAL_WIDTHS, 10_000)
    ((16, 8), (32, 16))
    """
    return tuple(width for width in widths if rows >= ENOUGH_ROWS or width <= FAST_WIDTH)


def choose_width(
    seconds: float, passes: float | None, seconds_of: Callable[[str], float], widths: Sequence[int] = WIDTHS
) -> tuple[str, str]:
    """Return the widest `fast` that sees the data often enough in so many seconds of steps, and why.

    `passes` that are given must fit; else ENOUGH_EPOCHS. `seconds_of` returns how long a pass of a network takes.

    >>> choose_width(1200, None, lambda name: {"fast-64": 300.0, "fast-32": 90.0}[name])
    ('fast-32', 'the widest that makes 12 passes in 20 minutes (13 here)')
    """
    wanted, time_there_is = passes or ENOUGH_EPOCHS, f"in {seconds / 60:.3g} minutes"
    for width in widths:
        name = f"fast-{width}"
        made = int(seconds / seconds_of(name))
        if made >= wanted:
            return name, f"the widest that makes {wanted:.3g} passes {time_there_is} ({made} here)"
    return name, f"the narrowest, because even it makes only {made} passes {time_there_is}"


def choose_epochs(batches: int, seconds: float, minutes: float, *, asked: bool = False) -> tuple[int, str]:
    """Return how many epochs of so many batches and seconds fit into so many minutes, and why; `asked`: by the user.

    >>> choose_epochs(3, 1.0, 30)
    (100, 'because that is 300 steps, the fewest that are enough')
    >>> choose_epochs(24, 3.0, 30)
    (60, 'the usual length, roughly 3 minutes here')
    >>> choose_epochs(500, 240.0, 30)
    (7, 'roughly 28 minutes here, where the usual 60 would take 4 hours')
    >>> choose_epochs(500, 2400.0, 30)
    (5, 'the fewest that tell right from wrong labels, roughly 3.3 hours here (smaller images, --data.limit N or a GPU
    make it shorter)')
    >>> choose_epochs(500, 300.0, 10, asked=True)
    (1, 'as many as fit into 10 minutes, a fifth of which is left for the work between steps')
    """
    wanted = max(EPOCHS, math.ceil(FEWEST_STEPS / batches))
    affordable = int(60 * minutes * (OF_STEPS if asked else 1) / seconds)
    if affordable >= wanted:
        why = (
            f"because that is {FEWEST_STEPS:,} steps, the fewest that are enough"
            if wanted > EPOCHS
            else f"the usual length, roughly {_duration(wanted * seconds)} here"
        )
        return wanted, why
    if asked:
        return max(1, affordable), (
            f"as many as fit into {minutes:g} minutes, a fifth of which is left for the work between steps"
        )
    epochs = max(affordable, FEWEST_EPOCHS)
    if affordable < FEWEST_EPOCHS:
        return epochs, (
            f"the fewest that tell right from wrong labels, roughly {_duration(epochs * seconds)} here "
            "(smaller images, --data.limit N or a GPU make it shorter)"
        )
    return epochs, (
        f"roughly {_duration(epochs * seconds)} here, where the usual {wanted} would take {_duration(wanted * seconds)}"
    )


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
