"""A pretrained network as an encoder: the features of all images are computed once and kept for later runs.

The network stays as it is. Method karat then judges the labels by the features and fits a linear head to its verdict,
as it does with embeddings; network and head are one model in the end.
"""

import hashlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from karat.algorithm.network import evaluation_mode
from karat.data.datasets import DOWNLOADABLE
from karat.data.examples import Examples
from karat.data.feature_store import KEY, FeatureStore, MemoryStore
from karat.data.images import ImageFiles, Inputs, read_ahead
from karat.data.modality import IMAGES
from karat.data.settings import DataForNetwork, DataSettings
from karat.data.task import NoisyTask, Origin
from karat.errors import Stopped, UserError
from karat.files.required import require
from karat.models import PRETRAINED, SMALL_IMAGE
from karat.models.pretrained import (
    HUB,
    Pretrained,
    PretrainedClassifier,
    at_hand,
    describe,
    is_pretrained,
    load_pretrained,
)
from karat.models.views import VIEWS, with_views
from karat.progress_bar import ProgressBar
from karat.settings.config import Config
from karat.training.build import views_of
from karat.training.plan import FITTING
from karat.training.semantic_noise import cache_folder

logger = logging.getLogger("karat")

Change = Callable[[PretrainedClassifier], PretrainedClassifier]

FORMAT = "karat features 1"  # changes where the same images become other features
AT_ONCE = 32  # images of 224 pixels: a block that is computed, written and not lost
# What `auto` takes where their weights are in timm's cache, the first of them. The order is a guess: of these only
# tf_efficientnet_lite0 was measured.
USUAL = ("convnext_tiny", "resnet50", "efficientnet_b0", "mobilenetv3_large_100", "tf_efficientnet_lite0", "resnet18")


def is_featured(config: Config) -> bool:
    """Tell whether the method judges images by the features of a pretrained network."""
    return config.method == FITTING and is_pretrained(config.model, config.weights)


def check_weights(config: Config) -> None:
    """Refuse a network or weights that are not there before data are read; fetch weights where that is asked for."""
    if config.model.startswith(HUB) and config.method != FITTING:
        raise UserError(
            f"Method {config.method} does not take {config.model}: name a network of timm, such as timm:resnet50, or "
            f"use method {FITTING}."
        )
    if is_pretrained(config.model, config.weights):
        _, file = describe(config.model, config.weights, download=config.data.download)
        require(file, "give the file of the weights, such as model.safetensors")


def data_of(config: Config) -> DataSettings:
    """Return which data to read; photographs get the size that a pretrained network wants."""
    data = config.data
    if not is_pretrained(config.model, config.weights):
        network = _usual_network(config)
        return data if network is None else DataForNetwork(**vars(data), photographs=_own_size(network, None))
    download = data.download and data.name in DOWNLOADABLE  # otherwise it is for the weights
    size = None if data.image_size is not None else _own_size(config.model, config.weights)
    return DataForNetwork(**{**vars(data), "download": download}, photographs=size)


def featured(config: Config, task: NoisyTask, device: torch.device, show: bool = True) -> NoisyTask:
    """Return the task with the features of a pretrained network as its inputs; as it is where there is none to ask."""
    model = config.model
    if model == "auto" and config.weights is None:
        shape = task.noisy.inputs.shape
        usual = _usual_network(config) if len(shape) == 4 and max(shape[2:]) > SMALL_IMAGE else None
        if usual is None:
            return task
        model = usual
    elif not is_featured(config):
        return task
    if task.dataset.modality is not IMAGES:
        raise UserError(
            f"The pretrained {model} needs images, and the data are {task.dataset.modality.name}: leave --model and "
            "--weights out."
        )
    channels = task.noisy.inputs.shape[1]
    if channels not in (1, 3):
        raise UserError(
            f"The pretrained {model} takes images of 1 or 3 channels, and these have {channels}: train a network from "
            "the start, without pretrained weights."
        )
    source, file = describe(model, config.weights, download=config.data.download)
    network, source = load_pretrained(
        replace(source, size=_size(task.noisy.inputs, source)), file, len(task.dataset.classes)
    )
    network = network.to(memory_format=torch.channels_last).to(device).requires_grad_(False)
    views = views_of(config, task)
    test, validation = task.dataset.test, task.validation
    parts = [part for part in (task.noisy, task.trusted, test, validation) if part is not None]
    folder = (config.data.cache or cache_folder() / "features") / _key(source, task.noisy.inputs, views)
    stored = _features([part.inputs for part in parts], network, views, folder, show)
    noisy, trusted, tested, *held_out = (
        Examples(inputs, part.labels) for inputs, part in zip(stored, parts, strict=True)
    )
    return replace(
        task,
        dataset=replace(task.dataset, test=tested, featured=True),
        noisy=noisy,
        trusted=trusted,
        validation=held_out[0] if held_out else None,
        origin=Origin(task, network.cpu(), model, source.to_dict(), views),
    )


def whole_model(task: NoisyTask, head: nn.Module, change: Change = lambda network: network) -> nn.Module:
    """Return what a model in use is: the network that made the features and the head that was fitted to them.

    `change` may put another network in its place.
    """
    if task.origin is None:
        return head
    network = task.origin.network
    assert isinstance(network, PretrainedClassifier)
    network.head.load_state_dict(head.state_dict())
    return with_views(change(network), task.origin.views)


def _usual_network(config: Config) -> str | None:
    """Return the network that `auto` takes: one whose weights are on this machine."""
    if config.model != "auto" or config.weights is not None or config.method != FITTING:
        return None
    found = at_hand(USUAL)
    return None if found is None else f"timm:{found}{PRETRAINED}"


def _own_size(model: str, weights: Path | None) -> int:
    return describe(model, weights)[0].size


def _size(inputs: Inputs, source: Pretrained) -> int:
    """Return the side of the images that the network sees.

    That is its own, unless the images were brought to another one: files are decoded at any size, and --data.image_size
    chooses it. Small ones are enlarged.
    """
    height, width = inputs.shape[2:]
    decoded_at_will = not isinstance(inputs, Tensor) and height == width and height > SMALL_IMAGE
    return int(height) if decoded_at_will else source.size


def _key(source: Pretrained, inputs: Inputs, views: str) -> str:
    """Return a name for all features that the same network makes in the same way."""
    way = (FORMAT, source.digest, source.mean, source.std, source.size, tuple(inputs.shape[1:]), views)
    return hashlib.blake2b(repr(way).encode(), digest_size=KEY).hexdigest()


def _features(
    parts: Sequence[Inputs], network: PretrainedClassifier, views: str, folder: Path, show: bool
) -> list[Inputs]:
    """Return the features of all parts; those that are not in the folder yet are computed."""
    keys = [_row_keys(part) for part in parts]
    width = network.head.in_features
    try:
        return _stored(FeatureStore(folder, width), parts, keys, network, views, show)
    except KeyboardInterrupt as error:
        number = error.exit_code - 128 if isinstance(error, Stopped) else signal.SIGINT
        raise Stopped(number, "stopped; the same command goes on with the features that are there.") from error
    except OSError as error:
        logger.warning(
            "The features cannot be kept in %s (%s), so that the next run computes them again: --data.cache FOLDER "
            "names another place.",
            folder,
            error.strerror or error,
        )
        return _stored(MemoryStore(width), parts, keys, network, views, show)


def _stored(
    place: FeatureStore,
    parts: Sequence[Inputs],
    keys: Sequence[Sequence[bytes]],
    network: PretrainedClassifier,
    views: str,
    show: bool,
) -> list[Inputs]:
    with place as store:
        missing = [store.missing(of_part) for of_part in keys]
        total = len({of_part[row] for of_part, rows in zip(keys, missing, strict=True) for row in rows})
        bar = ProgressBar("features", total) if show and total else None
        with bar or nullcontext():
            for inputs, of_part in zip(parts, keys, strict=True):
                rows = store.missing(of_part)  # again: an image may be in two parts
                for some, features in _computed(network, VIEWS.get(views), inputs, rows):
                    store.add([of_part[row] for row in some], features)
                    if bar is not None:
                        bar.advance(len(some))
        return [store.rows(of_part) for of_part in keys]


def _computed(
    network: PretrainedClassifier, views: Callable[[Tensor], list[Tensor]] | None, inputs: Inputs, rows: Sequence[int]
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield rows and their features, a few at a time; images are decoded while others are computed."""
    device = network.head.weight.device
    blocks = [list(rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE)]
    with evaluation_mode(network):
        for some, images in zip(blocks, read_ahead(inputs, blocks), strict=True):
            images = images.to(device).contiguous(memory_format=torch.channels_last)
            seen = [images] if views is None else views(images)
            # The mean over views, because a linear head takes the mean of logits to be that of features.
            features = torch.stack([network.features(view) for view in seen]).mean(dim=0)
            if not features.isfinite().all():
                raise UserError("The network's features are not finite: its weights are not fit for use, take others.")
            yield some, features.float().cpu().numpy()


def _row_keys(inputs: Inputs) -> list[bytes]:
    """Return a hash of each input."""
    if isinstance(inputs, ImageFiles):
        return inputs.digests()
    rows = (inputs[[row]] for row in range(len(inputs)))
    return [hashlib.blake2b(row.contiguous().numpy().tobytes(), digest_size=KEY).digest() for row in rows]
