"""What users of scikit-learn pass to an estimator, checked as scikit-learn does."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, column_or_1d, validation
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from karat.data.images import image_paths
from karat.data.text import are_texts
from karat.errors import UserError

Array = np.ndarray


def validated(estimator: BaseEstimator, X: Any, reset: bool) -> Array | pd.DataFrame | list[str] | list[Path]:
    """Return X checked by scikit-learn's rules: an array of numbers, or a table if it has a column that is not numeric.

    A list of texts, or of image files, is taken as it is.

    `reset` remembers the features' number and names in the estimator; else X must have the same.
    """
    paths = image_paths(X)
    if paths is not None or are_texts(X):
        if reset:
            estimator.n_features_in_ = 1
        elif estimator.n_features_in_ != 1:
            raise UserError("X has texts, and the classifier was fitted to numbers: give numbers.")
        return [str(text) for text in X] if paths is None else paths
    if is_mixed_frame(X):
        _check_features(estimator, X, reset)
        if len(X) == 0 or X.shape[1] == 0:
            raise UserError(
                f"Found array with {len(X)} sample(s) and {X.shape[1]} feature(s): at least 1 of each is required."
            )
        return X
    options: dict[str, Any] = {"dtype": "numeric", "allow_nd": True, "reset": reset}
    if hasattr(validation, "validate_data"):  # scikit-learn 1.6 and later
        return validation.validate_data(estimator, X, **options)
    return estimator._validate_data(X, **options)


def is_mixed_frame(X: Any) -> bool:
    """Return whether X is a DataFrame with a column that is not numeric, which scikit-learn's own checks refuse.

    >>> is_mixed_frame(pd.DataFrame({"age": [30], "town": ["Rome"]})), is_mixed_frame(pd.DataFrame({"age": [30]}))
    (True, False)
    """
    return isinstance(X, pd.DataFrame) and not all(map(pd.api.types.is_numeric_dtype, X.dtypes))


def checked_labels(y: Any) -> Array:
    """Return the labels as one array of class names or numbers; a missing one is refused.

    >>> checked_labels(["cat", None])
    Traceback (most recent call last):
    karat.errors.UserError: 1 of 2 labels are missing (the first in row 1): leave these rows out; they can be predicted.
    """
    if y is None:
        raise ValueError("This KaratClassifier estimator requires y to be passed, but the target y is None")
    missing: Any = np.asarray(pd.isna(np.asarray(y, dtype=object)))
    if missing.ndim <= 2 and missing.any():
        rows: Array = missing.reshape(len(missing), -1).any(axis=1)
        raise UserError(
            f"{rows.sum()} of {len(rows)} labels are missing (the first in row {rows.argmax()}): leave these rows out; "
            "they can be predicted."
        )
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels


def class_numbers(*parts: Array) -> tuple[Array, list[Tensor]]:
    """Return the sorted classes and the number of each label, part by part.

    >>> class_numbers(np.array(["dog", "cat"]), np.array(["cat"]))
    (array(['cat', 'dog'], dtype='<U3'), [tensor([1, 0]), tensor([0])])
    """
    try:
        classes, numbers = np.unique(np.concatenate(parts), return_inverse=True)
    except TypeError as error:
        raise UserError(
            "y mixes labels of several kinds, such as strings and numbers: write all as strings."
        ) from error
    if len(classes) < 2:
        raise UserError(f"y has {len(classes)} class: a classifier needs at least 2.")
    return classes, list(torch.from_numpy(numbers.astype(np.int64)).split([len(part) for part in parts]))


def trusted_mask(trusted: Any, rows: int) -> Tensor:
    """Return which rows are trusted, from a boolean mask or from indices.

    >>> trusted_mask([True, False, True], 3), trusted_mask([2], 3)
    (tensor([ True, False,  True]), tensor([False, False,  True]))
    >>> trusted_mask([0, 1, 1], 3)
    Traceback (most recent call last):
    karat.errors.UserError: trusted names row 1 twice: give a boolean mask (of 0 and 1: mask.astype(bool)),
        or each index once.
    """
    values = np.asarray(trusted)
    if values.dtype == object and all(isinstance(value, (bool, np.bool_)) for value in values.ravel()):
        values = values.astype(bool)  # pandas' nullable kind
    if values.ndim == 1 and values.dtype == bool:
        if len(values) != rows:
            raise UserError(f"trusted is a mask of {len(values)} rows, X has {rows}: give one value a row.")
        return torch.from_numpy(values.copy())
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise UserError(
            f"trusted has shape {values.shape} and type {values.dtype}: give a boolean mask of the {rows} rows, "
            "the indices of trusted rows, or a pair (X_trusted, y_trusted)."
        )
    numbers, counts = np.unique(values, return_counts=True)
    if len(numbers) and (numbers[0] < 0 or numbers[-1] >= rows):
        raise UserError(
            f"trusted names rows from {numbers[0]} to {numbers[-1]}, X has rows 0 to {rows - 1}: in a cross-validation "
            "give a boolean mask, which is divided with the rows."
        )
    if (counts > 1).any():
        raise UserError(
            f"trusted names row {numbers[counts.argmax()]} twice: give a boolean mask (of 0 and 1: mask.astype(bool)), "
            "or each index once."
        )
    mask = torch.zeros(rows, dtype=torch.bool)
    mask[torch.from_numpy(values.astype(np.int64))] = True
    return mask


def trusted_pair(trusted: Any) -> tuple[Any, Any] | None:
    """Return (X_trusted, y_trusted) where `trusted` is such a pair.

    >>> trusted_pair((True, False)) is None, trusted_pair(([[1.0]], ["cat"])) is None
    (True, False)
    """
    if not isinstance(trusted, (tuple, list)) or len(trusted) != 2:
        return None
    rows = trusted[0]
    are_rows = are_texts(rows) or image_paths(rows) is not None or np.ndim(rows) >= 2
    return (rows, trusted[1]) if are_rows else None


def _check_features(estimator: BaseEstimator, X: pd.DataFrame, reset: bool) -> None:
    if hasattr(validation, "validate_data"):
        validation.validate_data(estimator, X, reset=reset, skip_check_array=True)
    else:
        estimator._check_feature_names(X, reset=reset)
        estimator._check_n_features(X, reset=reset)
