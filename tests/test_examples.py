"""The examples for people with their own loop run, and their weights find the right labels."""

import importlib
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


def test_the_plain_torch_loop_puts_weight_on_right_labels(example):
    """28% of the labels are right (20% kept, and a tenth of the 80% redrawn): the share of equal weights."""
    module = example("own_loop_torch")
    data = module.load()
    right = (data.given == data.true)[data.noisy].float().mean().item()
    accuracy, share = module.train(data, reweigh=True, steps=30)
    plain_accuracy, plain_share = module.train(data, reweigh=False, steps=30)
    assert right == pytest.approx(0.28, abs=0.04)
    assert plain_share == pytest.approx(right, abs=0.03)
    assert share > 2 * right
    assert accuracy > plain_accuracy


def test_the_lightning_module_does_the_same(example):
    # the module resets warnings of its own making; those of the import are Lightning's
    pytest.importorskip("lightning", reason="the Lightning example needs `pip install lightning`")
    module = example("own_loop_lightning")
    data = module.load()
    accuracy, share = module.train(data, steps=30)
    assert share > 0.56  # twice that of equal weights
    assert accuracy > 0.7
    assert torch.is_grad_enabled()
