"""The states of all global random number generators, so that a run can go on with the same numbers."""

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """Return the states of the global generators of torch (CPU and every CUDA device), Python and NumPy.

    >>> states = random_states()
    >>> before = torch.rand(3), random.random()
    >>> restore_random_states(states)
    >>> torch.equal(torch.rand(3), before[0]) and random.random() == before[1]
    True
    """
    version, words, next_gauss = random.getstate()
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002  the global one is meant
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": [version, torch.tensor(words), next_gauss],
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Set the global generators to what `random_states` returned; CUDA devices not here are left out."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available():
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state, device)
    version, words, next_gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), next_gauss))
    kind, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
