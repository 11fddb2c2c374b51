"""Arrays as people bring them: check them, scale images to [-1, 1] as NCHW, standardise vectors."""

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from karat.data.readers import Array
from karat.errors import UserError


def mean_and_scale(vectors: Array) -> tuple[Array, Array]:
    """Return mean and deviation of each feature; the deviation of a constant one is 0.

    >>> mean_and_scale(np.array([[0.0, 3.0], [4.0, 3.0]]))
    (array([2., 3.]), array([2., 0.]))
    """
    values = vectors.astype(np.float64)
    scaler = StandardScaler().fit(values)
    return scaler.mean_, np.where(values.min(axis=0) == values.max(axis=0), 0.0, scaler.scale_)


def standardise(vectors: Array, mean: Array, scale: Array) -> Tensor:
    """Return (vectors − mean) / scale as float32, and 0 where the scale is 0."""
    divisor = np.where(scale == 0, np.inf, scale)
    return _float32((vectors.astype(np.float64) - mean) / divisor)


def scale_images(images: Array, signed: bool) -> Tensor:
    """Return images as float32 NCHW in [-1, 1]; floats are in [0, 1], or in [-1, 1] already where `signed`.

    >>> scale_images(np.array([[[0, 255]]], dtype=np.uint8), signed=False).tolist()
    [[[[-1.0, 1.0]]]]
    """
    if images.dtype == np.uint8:
        factor, offset = 1 / 127.5, -1.0
    else:
        factor, offset = (1.0, 0.0) if signed else (2.0, -1.0)
    return _images(images).mul_(factor).add_(offset)


def check_inputs(name: str, inputs: Array) -> None:
    """Raise a UserError where an array holds no vectors or images of finite numbers."""
    if inputs.ndim not in (2, 3, 4) or inputs.size == 0:
        raise UserError(
            f"{name} has shape {inputs.shape}: give vectors (N,F) or images (N,H,W), (N,H,W,C) or (N,C,H,W)."
        )
    if inputs.dtype.kind not in "biuf":
        raise UserError(f"{name} has type {inputs.dtype}: give numbers.")
    if inputs.dtype.kind != "f":
        return
    bad = ~np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)
    if bad.any():
        raise UserError(
            f"{name} has NaN or infinite values in {bad.sum()} of {len(inputs)} examples, "
            f"first in example {bad.argmax()}: fill them in or leave these examples out."
        )


def is_signed(images: Array) -> bool:
    """Return whether images are floats with values below 0; raise a UserError where they are no images."""
    if images.dtype == np.uint8:
        return False
    low, high = images.min(), images.max()
    if images.dtype.kind != "f" or low < -1 or high > 1:
        raise UserError(
            f"The images are {images.dtype}, from {low:g} to {high:g}: give uint8, or floats in [0, 1] or [-1, 1]."
        )
    return bool(low < 0)


def _images(images: Array) -> Tensor:
    if images.ndim == 3:
        return _float32(images[:, None])
    first, last = images.shape[1] in (1, 3, 4), images.shape[3] in (1, 3, 4)
    if first == last:
        raise UserError(
            f"Images of shape {images.shape} do not tell which axis is the channels: "
            "give (N,H,W,C) or (N,C,H,W) with 1, 3 or 4 channels."
        )
    return _float32(images if first else images.transpose(0, 3, 1, 2))


def _float32(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))  # a copy: callers scale it in place
