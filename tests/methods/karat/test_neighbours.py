"""Features smoothed over nearest neighbours."""

import pytest
import torch

from karat.methods.karat import neighbours
from karat.methods.karat.neighbours import smoothed


def moons(count):
    """Return points of two half-moons that reach into each other, and which each is of."""
    generator = torch.Generator().manual_seed(0)
    moon = torch.arange(count) % 2
    angle = 3.1416 * (torch.rand(count, generator=generator) + moon)
    points = torch.stack([angle.cos() + moon, angle.sin() + 0.5 * moon], dim=1)
    return points + 0.05 * torch.randn(points.shape, generator=generator), moon


def test_nothing_is_smoothed_by_0():
    points, _ = moons(50)
    assert torch.equal(next(smoothed(points, [0.0])), points)


def test_half_is_what_a_walk_sees_that_ends_every_second_time(monkeypatch):
    """Each of a pair sees itself at the steps 0, 2, 4, ...: 1/2 + 1/8 + ... = 2/3 of the time."""
    monkeypatch.setattr(neighbours, "NEIGHBOURS", 1)
    pairs = torch.tensor([[0.0], [3.0], [10.0], [13.0]])
    torch.testing.assert_close(next(smoothed(pairs, [0.5])), torch.tensor([[1.0], [2.0], [11.0], [12.0]]))


def test_near_neighbours_count_more(monkeypatch):
    monkeypatch.setattr(neighbours, "NEIGHBOURS", 2)
    points = torch.tensor([[0.0], [1.0], [4.0]])
    nearest = neighbours._nearest(points, None)
    assert nearest.places.tolist() == [[1, 2], [0, 2], [1, 0]]
    torch.testing.assert_close(nearest.weights[0], torch.tensor([-1 / 16, -1.0]).softmax(dim=0))


def test_a_line_tells_clusters_of_any_shape_apart():
    points, moon = moons(60)

    def told_apart(features):
        """Return the share of points on the side of their moon's mean."""
        means = torch.stack([features[moon == label].mean(dim=0) for label in (0, 1)])
        return (torch.cdist(features, means).argmin(dim=1) == moon).float().mean()

    before, after = (told_apart(version) for version in smoothed(points, [0.0, 0.99]))
    assert before < 0.8
    assert after > 0.9


@pytest.mark.parametrize("chunk", [7, 500])
def test_examples_outside_the_graph_look_up_their_neighbours(monkeypatch, chunk):
    """A few examples carry the walks; the others end up where their neighbours are."""
    monkeypatch.setattr(neighbours, "CHUNK", chunk)
    points = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)) * 0.1
    points[150:] += 5
    monkeypatch.setattr(neighbours, "MOST_INSIDE", 100)
    found = next(smoothed(points, [0.9]))
    assert found.shape == points.shape
    assert found[:150].std(dim=0).max() < 0.04
    assert found[150:].std(dim=0).max() < 0.04
    assert (found[150:] - found[:150]).min() > 4


@pytest.mark.parametrize("count", [2, 5, 30])
def test_examples_that_are_all_the_same_stay_so(count):
    same = torch.full((count, 3), 0.7)
    torch.testing.assert_close(next(smoothed(same, [0.95])), same)
