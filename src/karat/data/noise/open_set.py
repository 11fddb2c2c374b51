"""Open-set noise: some noisy images are none of the classes; they are replaced by images of another source."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from karat.data.arrays import check_inputs, is_signed, scale_images
from karat.data.datasets import DATASETS, load_dataset
from karat.data.decoding import IMAGE_ENDINGS
from karat.data.images import ImageFiles, Inputs
from karat.data.modality import IMAGES, modality_of
from karat.data.noise.labels import NoisyLabels
from karat.data.readers import Array, read_npz
from karat.errors import UserError, suggestion
from karat.noise_matrix import check_rate

Source = Tensor | ImageFiles | Array  # images in [-1, 1], image files, or pixels as an .npz file holds them

_GREY = (0.299, 0.587, 0.114)  # luma of ITU-R BT.601, as Pillow takes it
_BATCH = 1_000


def replace_images(
    inputs: Inputs, labels: Tensor, classes: int, rate: float, source: str, folder: Path | None,
    generator: torch.Generator,
) -> tuple[Inputs, NoisyLabels]:  # fmt: skip
    """Put foreign images in the place of round(rate · count) random ones; the labels stay (Wang et al. 2018).

    The true label of a foreign image is -1. Two sources joined with + give half each. Nothing given is changed.
    """
    check_rate(classes, rate)
    if modality_of(tuple(inputs.shape[1:])) is not IMAGES:
        raise UserError("Open-set noise replaces images, and the data are vectors: choose another noise.kind.")
    replaced = torch.randperm(len(labels), generator=generator)[: round(rate * len(labels))]
    names = source.split("+")
    new = inputs.clone() if isinstance(inputs, Tensor) else inputs
    for name, rows in zip(names, replaced.tensor_split(len(names)), strict=True):
        images = open_source(name, _folder_of(name, folder, alone=len(names) == 1), max(inputs.shape[2:]))
        if len(images) < len(rows):
            raise UserError(
                f"The open-set source {name} has {len(images)} images and {len(rows)} are asked for: "
                "add images to it, or lower noise.rate."
            )
        chosen = torch.randperm(len(images), generator=generator)[: len(rows)]
        if len(rows):
            new = _put(new, rows, images, chosen, name)
    true = labels.long().clone()
    true[replaced] = -1
    return new, NoisyLabels(labels.long(), true, classes, torch.eye(classes, dtype=torch.float64))


def open_source(name: str, folder: Path | None, size: int) -> Source:
    """Return all images of a source: a dataset, an .npz file, a folder of images, or imagenet in `folder`.

    `size` is the side to which image files are brought.
    """
    if name.endswith(".npz"):
        return _npz_images(Path(name) if folder is None else folder / name)
    if name == "imagenet":  # any images of it do, also those at 32x32, which are no dataset here
        if folder is None:
            raise UserError("The source imagenet needs its folder: set noise.source_path to its images or .npz files.")
        return _folder_images(folder, size)
    if name in DATASETS:
        dataset = load_dataset(name, folder)
        images = dataset.train.inputs
        if dataset.modality is not IMAGES:
            raise UserError(f"The open-set source {name} holds vectors, not images: choose another noise.source.")
        return ImageFiles(images.images, size) if isinstance(images, ImageFiles) else images
    if Path(name).is_dir():
        return _folder_images(Path(name), size)
    raise UserError(
        f"There is no open-set source '{name}'.{suggestion(name, DATASETS)} "
        "Give noise.source a dataset, an .npz file, a folder of images, imagenet, or two of them joined with +."
    )


def fit_images(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Bring images to so many channels, height and width; colour becomes grey by its luma, grey is repeated.

    >>> fit_images(torch.ones(2, 1, 28, 28), (3, 32, 32)).shape
    torch.Size([2, 3, 32, 32])
    """
    channels, height, width = shape
    if images.shape[1] == 4 and channels != 4:
        images = images[:, :3]  # without its transparency
    if images.shape[1] != channels:
        if images.shape[1] == 3 and channels == 1:
            images = (images * images.new_tensor(_GREY)[:, None, None]).sum(dim=1, keepdim=True)
        elif images.shape[1] == 1:
            images = images.expand(-1, channels, -1, -1)
        else:
            raise UserError(
                f"Images of {images.shape[1]} channels cannot take the place of images of {channels}: "
                "choose a noise.source of grey or colour images."
            )
    if images.shape[2:] == (height, width):
        return images
    return interpolate(images, (height, width), mode="bilinear", antialias=True).clamp(-1, 1)


def _put(inputs: Inputs, rows: Tensor, source: Source, chosen: Tensor, name: str) -> Inputs:
    if isinstance(inputs, Tensor):  # a copy of the data's
        shape = (inputs.shape[1], inputs.shape[2], inputs.shape[3])
        for places, wanted in zip(rows.split(_BATCH), chosen.split(_BATCH), strict=True):
            inputs[places] = fit_images(_take(source, wanted), shape)
        return inputs
    if not (isinstance(inputs, ImageFiles) and isinstance(source, ImageFiles)):
        raise UserError(
            f"The data are read from image files, and the open-set source {name} is not: give a folder of images."
        )
    images, foreign = inputs.images, source.subset(chosen).images
    for row, image in zip(rows.tolist(), foreign, strict=True):
        images[row] = image
    return inputs.like(images)


def _take(source: Source, rows: Tensor) -> Tensor:
    if isinstance(source, np.ndarray):
        pixels = source[rows.numpy()]
        check_inputs("The open-set source", pixels)
        return scale_images(pixels, is_signed(pixels))
    return source[rows]


def _folder_of(name: str, folder: Path | None, alone: bool) -> Path | None:
    """Return a source's folder: that of its name in the given one; the given one itself if the source is alone."""
    if folder is not None and (folder / name).is_dir():
        return folder / name
    return folder if alone else None


def _folder_images(folder: Path, size: int) -> Source:
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}: set noise.source_path to the folder of the foreign images.")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_ENDINGS)
    if files:
        return ImageFiles(files, size)
    arrays = sorted(folder.rglob("*.npz"))
    if not arrays:
        raise UserError(f"There are no images and no .npz files in {folder}: check the path.")
    return np.concatenate([_npz_images(file) for file in arrays])


def _npz_images(file: Path) -> Array:
    arrays = read_npz(file)
    pixels = arrays.get("data", arrays.get("train_inputs"))
    if pixels is None:
        raise UserError(f"{file} has no data and no train_inputs: save the foreign images under one of these names.")
    if pixels.ndim == 2:  # ImageNet at 32x32 as distributed: the planes of red, green and blue in one row
        side = round((pixels.shape[1] / 3) ** 0.5)
        if side < 1 or 3 * side * side != pixels.shape[1]:
            raise UserError(
                f"The rows of {file} have {pixels.shape[1]} values, which is no square colour image: "
                "give images (N,H,W,C) or rows of 3·H·W values."
            )
        pixels = pixels.reshape(-1, 3, side, side)
    return pixels
