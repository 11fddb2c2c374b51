"""Random numbers go on after a checkpoint."""

import random

import numpy as np
import pytest
import torch

from karat.files.checkpoints import load_checkpoint, save_checkpoint
from karat.training.random_states import random_states, restore_random_states


def draws():
    return (
        torch.randn(5).tolist(),
        [random.random(), random.gauss(0, 1), random.gauss(0, 1), random.gauss(0, 1)],
        np.random.standard_normal(3).tolist(),  # noqa: NPY002
    )


@pytest.mark.parametrize("burn", [0, 1, 700])
def test_random_numbers_go_on_after_a_checkpoint(tmp_path, burn):
    """Also after an odd number of Gaussian draws, when Python and NumPy hold the other of a pair."""
    outside = random_states()
    random.gauss(0, 1)
    np.random.standard_normal(1 + burn)  # noqa: NPY002
    torch.rand(burn)
    save_checkpoint(tmp_path / "run.ckpt", random_states())
    expected = draws()
    draws()
    restore_random_states(load_checkpoint(tmp_path / "run.ckpt"))
    assert draws() == expected
    restore_random_states(outside)
