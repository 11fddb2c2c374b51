"""Semantic noise: a network trained on a few true labels gives the labels, and errs as networks do."""

import hashlib
import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from karat.data.augmentation import seeded
from karat.data.examples import Dataset, Examples
from karat.data.modality import IMAGES, modality_of
from karat.data.noise.kinds import Labeller
from karat.data.noise.label_files import load_labels, save_labels
from karat.data.noise.labels import NoisyLabels
from karat.data.samplers import ShuffledStream
from karat.data.settings import AugmentationSettings, NoiseSettings
from karat.data.trusted import rank_within_class
from karat.errors import UserError
from karat.inference.device import compute_device
from karat.inference.evaluation import predict_probabilities
from karat.models import build_model
from karat.settings.config import OptimizerSettings
from karat.training.optimizers import make_optimizer, set_rate
from karat.training.plan import default_batch_size
from karat.training.schedules import cosine
from karat.training.streams import new_generator

logger = logging.getLogger("karat")

VERSION = 2  # of the labels: kept ones of another version are made again


@dataclass(frozen=True)
class LabellerSettings:
    """What decides the labels: how much of the data, which network, how long, which seed."""

    fraction: float = 0.05
    model: str = "vgg-13"
    epochs: int = 60
    seed: int = 0


def semantic_labeller(noise: NoiseSettings, seed: int, device: str = "auto") -> Labeller | None:
    """Return the function that labels a dataset for semantic noise, from the cache if it did before; else None."""
    if noise.kind != "semantic":
        return None

    def label(dataset: Dataset) -> Tensor:
        # The default labeller is for images; vectors need one as well.
        model = noise.labeller if dataset.modality is IMAGES else "mlp"
        settings = LabellerSettings(noise.fraction, model, noise.labeller_epochs, seed)
        classes, rows = len(dataset.classes), torch.arange(len(dataset.train))
        file = cache_folder() / "semantic_labels" / f"{cache_key(dataset, settings)}.npz"
        if file.is_file():
            try:
                return load_labels(file, rows, classes).given
            except UserError as error:  # damaged: nothing is lost but time
                logger.warning("%s The labels are made again.", error)
        logger.warning(
            "Training %s on %.0f%% of %s to label the rest; the labels will be kept in %s.",
            settings.model, 100 * settings.fraction, dataset.name, file,
        )  # fmt: skip
        given = semantic_labels(dataset.train, classes, settings, dataset.flip, device)
        save_labels(NoisyLabels(given, dataset.train.labels, classes, None), rows, file)
        return given

    return label


def semantic_labels(
    train: Examples, classes: int, settings: LabellerSettings, flip: bool = False, device: str = "auto"
) -> Tensor:
    """Train a network on a class-balanced fraction of the examples and return what it predicts for all of them.

    Cross-entropy on weak views; SGD with Nesterov momentum 0.9, rate 0.05 falling along a cosine, weight decay 5e-4.
    The fraction is predicted as well, so its labels are nearly all right. The last bits depend on the device.
    """
    # With the seed itself the trusted examples of a run are drawn: they must not be those that the labeller learns.
    generator = new_generator(torch.Generator().manual_seed(settings.seed))
    chosen = _balanced(train.labels, max(classes, round(settings.fraction * len(train))), generator)
    with seeded(generator):  # initial parameters and dropout draw from torch's global generator, which is put back
        model = _trained(train, chosen, classes, settings, flip, device, generator)
    probabilities = predict_probabilities(model, train.inputs)
    if not probabilities.isfinite().all():
        raise UserError(f"The labeller {settings.model} diverged: choose another noise.labeller.")
    return probabilities.argmax(dim=1)


def cache_folder() -> Path:
    """Return where labels are kept: $KARAT_CACHE, or ~/.cache/karat."""
    named = os.environ.get("KARAT_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "karat"


def cache_key(dataset: Dataset, settings: LabellerSettings) -> str:
    """Return a hash of the train examples and everything else that decides the labels."""
    digest = hashlib.blake2b(repr((VERSION, settings, dataset.flip, len(dataset.classes))).encode(), digest_size=16)
    for part in (dataset.train.inputs, dataset.train.labels):
        content = part.contiguous().numpy().tobytes() if isinstance(part, Tensor) else part.fingerprint()
        digest.update(content)
    return digest.hexdigest()


def _balanced(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return so many indices, as balanced as the classes allow: the lowest ranks within their classes."""
    return rank_within_class(labels, generator).argsort(stable=True)[:count].sort().values


def _trained(
    train: Examples, chosen: Tensor, classes: int, settings: LabellerSettings, flip: bool, device: str,
    generator: torch.Generator,
) -> nn.Module:  # fmt: skip
    shape = tuple(train.inputs.shape[1:])
    where = compute_device(device)
    model = build_model(settings.model, shape, classes).to(where)
    augmentation = modality_of(shape).augment(shape, flip, AugmentationSettings(policy="none"))
    optimizer = make_optimizer(model, OptimizerSettings("sgd", 0.05, 0.9, nesterov=True))
    batch_size = min(default_batch_size(len(chosen)), len(chosen))
    steps = settings.epochs * math.ceil(len(chosen) / batch_size)
    schedule, stream = cosine(0.05, steps), ShuffledStream(chosen, generator)
    model.train()
    for step in range(steps):
        set_rate(optimizer, schedule(step))
        batch = train.batch(stream.next(batch_size))
        views = augmentation.weak(batch.inputs, generator).to(where)
        loss = cross_entropy(model(views), batch.labels.to(where))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
