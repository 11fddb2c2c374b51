"""Arrays as people bring them: scale images to [-1, 1] as NCHW, standardise vectors, number labels."""

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from karat.data.readers import Array
from karat.data.schema import Schema
from karat.errors import UserError


def scale_inputs(train: Array, test: Array | None = None) -> tuple[Tensor, Tensor]:
    """Return float32 inputs: two axes are vectors, three are grey images, four are images N,H,W,C or N,C,H,W.

    Vectors are standardised with mean and deviation of the train part. Without a test part, the second result has no
    rows. Images are uint8, or floats in [0, 1] or [-1, 1].

    >>> train, test = scale_inputs(np.array([[0.0], [4.0]]), np.array([[6.0]]))
    >>> train.tolist(), test.tolist()
    ([[-1.0], [1.0]], [[2.0]])
    """
    check_inputs("train_inputs", train)
    if test is None:
        test = train[:0]
    else:
        check_inputs("test_inputs", test)
    if train.shape[1:] != test.shape[1:]:
        raise UserError(
            f"An example has shape {train.shape[1:]} in train_inputs and {test.shape[1:]} in test_inputs: "
            "give both the same shape."
        )
    if train.ndim == 2:
        mean, scale = mean_and_scale(train)
        return standardise(train, mean, scale), standardise(test, mean, scale)
    signed = is_signed(train, test)
    return scale_images(train, signed), scale_images(test, signed)


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


def array_inputs(schema: Schema, inputs: Array) -> Tensor:
    """Return the inputs of a new array, which must be of the kind that the schema describes."""
    check_inputs("The array of inputs", inputs)
    if not schema.images:
        columns = schema.columns
        if any(len(column.inputs) != 1 or column.kind != "number" for column in columns):
            raise UserError("The model was trained on a table with named columns: give a table with these columns.")
        if inputs.ndim != 2 or inputs.shape[1] != len(columns):
            raise UserError(f"The array of inputs has shape {inputs.shape}: give vectors (N,{len(columns)}).")
        mean, scale = (np.array([getattr(column, name) for column in columns]) for name in ("mean", "scale"))
        return standardise(inputs, mean, scale)
    channels, height, width = schema.shape
    if inputs.ndim == 2:
        raise UserError(f"The array of inputs has shape {inputs.shape}: give images of {height}x{width} pixels.")
    images = scale_images(inputs, is_signed(inputs, inputs) or schema.signed)
    if tuple(images.shape[1:]) != schema.shape:
        raise UserError(
            f"The images in the array have {images.shape[1]} channels and {images.shape[2]}x{images.shape[3]} pixels: "
            f"give images of {channels} channels and {height}x{width} pixels."
        )
    return images


def number_labels(train: Array, test: Array) -> tuple[Array, Array, tuple[str, ...]]:
    """Number the sorted classes of the train part, which may be integers or strings, and return their names.

    >>> number_labels(np.array(["dog", "cat", "dog"]), np.array(["cat"]))
    (array([1, 0, 1]), array([0]), ('cat', 'dog'))
    """
    for name, labels in (("train_labels", train), ("test_labels", test)):
        if labels.ndim != 1 or labels.dtype.kind not in "iuU":
            raise UserError(
                f"{name} has shape {labels.shape} and type {labels.dtype}: give one integer or string per example."
            )
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise UserError("Of train_labels and test_labels one holds strings, the other integers: use the same names.")
    values, numbered = np.unique(train, return_inverse=True)
    if len(values) < 2:
        raise UserError(f"train_labels has {len(values)} class{'es' * (len(values) != 1)}: give at least 2.")
    unknown = np.setdiff1d(test, values)
    if len(unknown):
        raise UserError(f"test_labels has the class {unknown[0]}, which train_labels has not: leave it out.")
    return numbered, np.searchsorted(values, test), tuple(str(value) for value in values)


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


def is_signed(train: Array, test: Array) -> bool:
    """Return whether images are floats with values below 0; raise a UserError where they are no images."""
    if train.dtype == test.dtype == np.uint8:
        return False
    parts = [part for part in (train, test) if part.size]
    low, high = min(part.min() for part in parts), max(part.max() for part in parts)
    if train.dtype.kind != "f" or test.dtype.kind != "f" or low < -1 or high > 1:
        raise UserError(
            f"The images are {train.dtype} (train) and {test.dtype} (test), from {low:g} to {high:g}: "
            "give uint8, or floats in [0, 1] or [-1, 1], in both parts."
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
