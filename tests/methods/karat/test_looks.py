"""How inputs look to the judges: the same whether heads learn from a row or not, and never all rows at once."""

from dataclasses import replace

import pytest
import torch

from karat.methods.karat.constants import CONSTANTS, TreeConstants
from karat.methods.karat.method import Karat
from karat.methods.karat.views import look_at
from karat.methods.method import Task
from karat.methods.settings import KaratSettings
from karat.noise_matrix import symmetric_transition

COUNT, CLASSES, CHUNK = 600, 3, 40
FEW_WALKS = replace(CONSTANTS, neighbours=replace(CONSTANTS.neighbours, most_inside=150))


def task(copies=1, rate=0.3, told=lambda work, share: None):
    """Return rows of three classes around corners of five columns, ten of each trusted, and the true classes."""
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(COUNT + 30) % CLASSES
    inputs = (torch.randn(COUNT + 30, 5, generator=generator) + 4 * torch.eye(CLASSES, 5)[true]).repeat(1, copies)
    given = torch.multinomial(symmetric_transition(CLASSES, rate)[true], 1, generator=generator).flatten()
    noisy, trusted = inputs[:COUNT], inputs[COUNT:]
    reads = noisy.__getitem__, trusted.__getitem__
    known = Task(given[:COUNT], reads[0], true[COUNT:], reads[1], CLASSES, "vectors", None, tell=told)
    return known, true[:COUNT]


def test_a_row_looks_the_same_whether_heads_learn_from_it_or_not():
    """Where walks do not go over a row, it looks up its neighbours among those over which they go in either case."""
    known, _ = task()
    rows = torch.arange(0, COUNT, 2)
    views, looks = look_at(known, rows, torch.Generator().manual_seed(0), FEW_WALKS)
    again = zip(*(features for _, features in looks.others(known, rows, CHUNK)), strict=True)
    same = [torch.isclose(view.noisy, torch.cat(part)).all(dim=1) for view, part in zip(views, again, strict=True)]
    assert torch.equal(*same)
    assert 150 <= int(same[0].sum()) < 190  # 150 of 330 rows, noisy and trusted, carry the walks


def test_walks_go_over_rows_that_heads_do_not_learn_from():
    """Where heads learn from 60 rows and walks may go over 150; all rows that are looked at are still those 60 and the
    trusted ones, and walks over them alone see something else."""
    known, _ = task()
    rows = torch.arange(0, COUNT, 10)
    views, looks = look_at(known, rows, torch.Generator().manual_seed(0), FEW_WALKS)
    assert len(looks.walks.start) == 150
    assert [(len(view.noisy), len(view.trusted)) for view in views] == [(60, 30)] * 2
    alone = replace(FEW_WALKS, neighbours=replace(FEW_WALKS.neighbours, most_inside=90))
    assert not torch.allclose(look_at(known, rows, torch.Generator().manual_seed(0), alone)[0][1].noisy, views[1].noisy)


def test_other_rows_come_once_each_and_a_few_at_a_time():
    shares, asked = [], []
    known, _ = task(told=lambda work, share: shares.append(share))
    rows = torch.arange(1, COUNT, 2)
    _, looks = look_at(known, torch.arange(0, COUNT, 2), torch.Generator().manual_seed(0), FEW_WALKS)
    counting = replace(known, noisy_inputs=lambda some: (asked.append(len(some)), known.noisy_inputs(some))[1])
    shares.clear()
    found = [some for some, _ in looks.others(counting, rows, CHUNK)]
    assert torch.equal(torch.cat(found), rows)
    assert max(asked) <= CHUNK
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("copies", [1, 41])
def test_few_rows_to_learn_from_leave_the_verdict_as_good(copies):
    """A third of the rows are learned, with trees (5 columns) and without them (205)."""
    known, true = task(copies)
    quick = replace(
        CONSTANTS.verdict, strengths=(1.0, 10.0), rounds=2, sharpness=(1.0,), trees=TreeConstants(stages=(8,))
    )
    few = replace(quick, most_learned=200, others=CHUNK)
    right = []
    for constants in (quick, few):
        method = Karat(known, KaratSettings(), replace(FEW_WALKS, verdict=constants))
        method.look(torch.Generator().manual_seed(0))
        right.append((method.verdict.posterior.argmax(dim=1) == true).double().mean().item())
        torch.testing.assert_close(method.verdict.posterior.sum(dim=1), torch.ones(COUNT))
    assert min(right) > 0.95
