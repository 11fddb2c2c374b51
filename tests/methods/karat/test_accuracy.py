"""The default method as a whole, on data that somebody spoilt: what a mistake in any of its parts would lower."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from karat import KaratClassifier


def spoilt_digits():
    """Return 1,200 digits as vectors, 80% of whose labels are redrawn, with 100 trusted ones, and 597 for the test."""
    inputs, labels = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(labels))
    (inputs, test_inputs), (true, test_labels) = (np.split(part[order], [1200]) for part in (inputs, labels))
    given = np.where(random.random(1200) < 0.8, random.integers(0, 10, 1200), true)
    trusted = np.zeros(1200, bool)
    for label in range(10):
        trusted[np.flatnonzero(true == label)[:10]] = True
    given[trusted] = true[trusted]
    return inputs, given, trusted, true, test_inputs, test_labels


def test_most_digits_are_recognised_where_most_labels_are_wrong():
    """Four epochs, seeds 0 to 2: 94.1, 93.6, 95.1% are right, and 72, 73, 71% of the labels are called wrong (73% are).

    Broken on purpose it reached: 86.1, 81.9, 84.4% with the given labels in the place of the posteriors (62, 44, 38%
    called wrong); 72.5, 73.7, 78.6% with judges that see nothing; 90.6, 94.1, 93.1% with a noise matrix that calls 90%
    of the labels right, but then 45, 67, 35% are called wrong. That one counts the noise, the accuracy hardly tells.
    """
    inputs, given, trusted, true, test_inputs, test_labels = spoilt_digits()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = KaratClassifier(epochs=4, random_state=0, device="cpu").fit(inputs, given, trusted=trusted)
    finally:
        torch.set_num_threads(threads)
    assert (found.predict(test_inputs) == test_labels).mean() > 0.9
    assert abs(found.noise_rate_ - (given != true)[~trusted].mean()) < 0.04
