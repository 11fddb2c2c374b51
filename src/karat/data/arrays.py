"""Arrays as people bring them: scale images to [-1, 1] as NCHW, standardise vectors, number labels."""

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from karat.data.readers import Array
from karat.errors import UserError


def scale_inputs(train: Array, test: Array) -> tuple[Tensor, Tensor]:
    """Return float32 inputs: two axes are vectors, three are grey images, four are images N,H,W,C or N,C,H,W.

    Vectors are standardised with mean and deviation of the train part.
    Images are uint8, or floats in [0, 1] or [-1, 1].

    >>> train, test = scale_inputs(np.array([[0.0], [4.0]]), np.array([[6.0]]))
    >>> train.tolist(), test.tolist()
    ([[-1.0], [1.0]], [[2.0]])
    """
    for name, inputs in (("train_inputs", train), ("test_inputs", test)):
        _check_inputs(name, inputs)
    if train.shape[1:] != test.shape[1:]:
        raise UserError(
            f"An example has shape {train.shape[1:]} in train_inputs and {test.shape[1:]} in test_inputs: "
            "give both the same shape."
        )
    if train.ndim == 2:
        scaler = StandardScaler().fit(train.astype(np.float64))
        return _float32(scaler.transform(train.astype(np.float64))), _float32(scaler.transform(test.astype(np.float64)))
    if train.dtype == test.dtype == np.uint8:
        factor, offset = 1 / 127.5, -1.0
    else:
        factor, offset = _float_scale(train, test)
    return _images(train).mul_(factor).add_(offset), _images(test).mul_(factor).add_(offset)


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


def _check_inputs(name: str, inputs: Array) -> None:
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


def _float_scale(train: Array, test: Array) -> tuple[float, float]:
    low, high = min(train.min(), test.min()), max(train.max(), test.max())
    if train.dtype.kind != "f" or test.dtype.kind != "f" or low < -1 or high > 1:
        raise UserError(
            f"The images are {train.dtype} (train) and {test.dtype} (test), from {low:g} to {high:g}: "
            "give uint8, or floats in [0, 1] or [-1, 1], in both parts."
        )
    return (1.0, 0.0) if low < 0 else (2.0, -1.0)


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
