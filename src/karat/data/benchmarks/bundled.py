"""The small datasets that come with scikit-learn: digits, wine, breast cancer."""

from typing import Any

import numpy as np
from sklearn import datasets as sklearn_datasets
from sklearn.model_selection import train_test_split

from karat.data.examples import Dataset, Request, from_arrays
from karat.data.readers import Array


def digits(request: Request) -> Dataset:
    """Load 1,797 handwritten digits as 12x12 grey images."""
    request.refuse_folder()
    bunch = sklearn_datasets.load_digits()
    # Background around the 8x8 pixels, to 12x12: it leaves augmentation room to move the digit.
    inputs = np.pad(bunch.images / 16, ((0, 0), (2, 2), (2, 2)))
    return _split("digits", bunch, inputs, test_size=497)  # 1,300 train: 100 trusted leave 1,200 noisy


def wine(request: Request) -> Dataset:
    """Load 178 wines of 3 growers, 13 features each."""
    request.refuse_folder()
    bunch = sklearn_datasets.load_wine()
    return _split("wine", bunch, bunch.data, test_size=0.3)


def breast_cancer(request: Request) -> Dataset:
    """Load 569 tumours, malignant or benign, 30 features each."""
    request.refuse_folder()
    bunch = sklearn_datasets.load_breast_cancer()
    return _split("breast_cancer", bunch, bunch.data, test_size=0.3)


def _split(name: str, bunch: Any, inputs: Array, test_size: int | float) -> Dataset:
    # The split has its own fixed seed: other noise or another run never changes which examples are tested.
    train_inputs, test_inputs, train_labels, test_labels = train_test_split(
        inputs, bunch.target, test_size=test_size, stratify=bunch.target, random_state=0
    )
    classes = tuple(str(target) for target in bunch.target_names)
    return from_arrays(name, (train_inputs, train_labels), (test_inputs, test_labels), classes, flip=False)
