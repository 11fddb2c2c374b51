"""One thread for each test process: two busy processes with two threads each are far slower."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
