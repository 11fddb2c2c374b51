"""A classifier that is fitted sees all terms of a text; a network that is trained sees its directions."""

import numpy as np
import pytest
import torch
from scipy import sparse

from karat import Config, make_task
from karat.data.sources.memory import from_memory
from karat.data.text_rows import TextRows
from karat.methods.karat.classifier import SoftlyLabelled, fit_classifier, fit_sparse_classifier
from karat.training import terms
from karat.training.build import vectors_at
from karat.training.terms import with_terms

TEXTS = [f"{colour} {thing} {place}" for place in range(10) for colour in ("red", "blue") for thing in ("car", "pear")]
LABELS = [text.split()[1] for text in TEXTS]


@pytest.fixture
def task():
    return make_task(from_memory(TEXTS, LABELS, [place < 4 for place in range(len(TEXTS))]))


@pytest.mark.parametrize("config", [Config(), Config(model="linear")])
def test_a_fitted_classifier_gets_all_terms_and_judges_their_directions(task, config):
    seen = with_terms(config, task)
    wide, narrow = seen.noisy.inputs, task.noisy.inputs
    assert isinstance(wide, TextRows)
    assert seen.dataset.schema.shape == tuple(wide.shape[1:]) == (narrow.counts.shape[1],)
    np.testing.assert_array_equal(wide[[3]].to_dense().numpy(), narrow.counts[[3]].toarray())
    rows = torch.tensor([5, 2])
    assert torch.equal(vectors_at(wide)(rows), narrow[rows])
    again = seen.dataset.schema.inputs_of(TEXTS[4:])
    assert torch.equal(again[:].to_dense(), wide[:].to_dense())
    assert seen.fingerprint() == task.fingerprint()


@pytest.mark.parametrize("config", [Config(model="mlp"), Config(method="gce"), Config(model="mlp", method="ieg")])
def test_networks_get_directions(task, config):
    seen = with_terms(config, task)
    assert torch.equal(seen.noisy.inputs, task.noisy.inputs[:])
    assert seen.dataset.schema is task.dataset.schema


def test_a_classifier_of_all_terms_that_would_fill_the_memory_is_not_made(task, monkeypatch):
    monkeypatch.setattr(terms, "MOST_NUMBERS", 10)
    assert isinstance(with_terms(Config(), task).noisy.inputs, torch.Tensor)


def test_sparse_rows_give_the_classifier_that_dense_ones_give():
    """Columns whose mean is 0: nothing is moved in either."""
    random = torch.Generator().manual_seed(0)
    half = torch.randn(60, 5, generator=random) * (torch.rand(60, 5, generator=random) < 0.5)
    rows, targets = torch.cat([half, -half]), torch.rand(120, 3, generator=random).softmax(dim=1)
    dense = fit_classifier([SoftlyLabelled(rows.__getitem__, targets)], standardised=False)
    found = fit_sparse_classifier(sparse.csr_matrix(rows.numpy()), targets)
    for one, other in zip(found, dense, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
    assert found[0].abs().max() > 0.01
