"""What kind of thing one input is: asked of the data once; everybody else looks into this record."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from karat.data.augmentation import ImageAugmentation, VectorAugmentation
from karat.data.readers import Array
from karat.data.settings import AugmentationSettings
from karat.errors import UserError


class Modality(NamedTuple):
    """One kind of input.

    `axes` are those of one input. `augment` takes an input's shape, whether a mirrored image means the same by the
    dataset, and the settings; it returns what makes the views. `pictures` shows inputs to a person; None where the
    user's own cells are shown instead. `memory_format` is the one in which networks are quickest. Which network is the
    default (`training/plan.py`) and which features know no label (`methods/karat/appearance.py`) stand in tables there,
    under the `name`.
    """

    name: str
    axes: int
    augment: Callable[[tuple[int, ...], bool, AugmentationSettings], Any]
    pictures: Callable[[Tensor], list[Array]] | None
    memory_format: torch.memory_format


def image_views(shape: tuple[int, ...], flip: bool, settings: AugmentationSettings) -> ImageAugmentation:
    """Return what makes the views of images (channels, height, width)."""
    channels, height, width = shape
    return ImageAugmentation((channels, height, width), settings.mirrors(flip), settings)


def vector_views(shape: tuple[int, ...], flip: bool, settings: AugmentationSettings) -> VectorAugmentation:
    """Return what makes the views of vectors."""
    return VectorAugmentation(settings)


def pictures_of(images: Tensor) -> list[Array]:
    """Return images as the network sees them before augmentation: uint8, (height, width) or (height, width, 3).

    >>> pictures_of(torch.tensor([[[[-1.0, 1.0]]]]))
    [array([[  0, 255]], dtype=uint8)]
    """
    pixels = ((images + 1) * 127.5).round().clamp(0, 255).byte()
    if pixels.shape[1] not in (1, 3):  # such as satellite bands: the first one says most
        pixels = pixels[:, :1]
    return [image.squeeze(2) if image.shape[2] == 1 else image for image in pixels.permute(0, 2, 3, 1).numpy()]


IMAGES = Modality("images", 3, image_views, pictures_of, torch.channels_last)
VECTORS = Modality("vectors", 1, vector_views, None, torch.contiguous_format)
TEXTS = Modality("texts", 1, vector_views, None, torch.contiguous_format)  # vectors, as an encoder makes them
FEATURES = Modality("features", 1, vector_views, None, torch.contiguous_format)  # of images, by a pretrained network
MODALITIES = (IMAGES, VECTORS)  # by their shapes


def modality_of(shape: tuple[int, ...]) -> Modality:
    """Return the modality of inputs of this shape, one input's.

    >>> modality_of((1, 12, 12)).name, modality_of((13,)).name
    ('images', 'vectors')
    """
    for modality in MODALITIES:
        if modality.axes == len(shape):
            return modality
    raise UserError(f"An input has the shape {shape}: give images (channels, height, width) or vectors (features,).")
