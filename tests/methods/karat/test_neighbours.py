"""Features smoothed over nearest neighbours."""

import pytest
import torch

from karat.methods.karat.constants import NeighbourConstants
from karat.methods.karat.neighbours import _least, _nearest, smoothed


def smoothed_by(amount, points, **constants):
    (version,), _ = smoothed(points.clone(), torch.Generator(), NeighbourConstants(amounts=(amount,), **constants))
    return version


def moons(count):
    """Return points of two half-moons that reach into each other, and which each is of."""
    generator = torch.Generator().manual_seed(0)
    moon = torch.arange(count) % 2
    angle = 3.1416 * (torch.rand(count, generator=generator) + moon)
    points = torch.stack([angle.cos() + moon, angle.sin() + 0.5 * moon], dim=1)
    return points + 0.05 * torch.randn(points.shape, generator=generator), moon


def test_nothing_is_smoothed_by_0():
    points, _ = moons(50)
    assert torch.equal(smoothed_by(0.0, points), points)


def test_half_is_what_a_walk_sees_that_ends_every_second_time():
    """Each of a pair sees itself at the steps 0, 2, 4, ...: 1/2 + 1/8 + ... = 2/3 of the time."""
    pairs = torch.tensor([[0.0], [3.0], [10.0], [13.0]])
    torch.testing.assert_close(smoothed_by(0.5, pairs, count=1), torch.tensor([[1.0], [2.0], [11.0], [12.0]]))


def test_near_neighbours_count_more():
    points = torch.tensor([[0.0], [1.0], [4.0]])
    nearest = _nearest(points, None, NeighbourConstants(count=2))
    assert nearest.places.tolist() == [[1, 2], [0, 2], [1, 0]]
    torch.testing.assert_close(nearest.weights[0], torch.tensor([-1 / 16, -1.0]).softmax(dim=0))


def test_a_line_tells_clusters_of_any_shape_apart():
    points, moon = moons(60)

    def told_apart(features):
        """Return the share of points on the side of their moon's mean."""
        means = torch.stack([features[moon == label].mean(dim=0) for label in (0, 1)])
        return (torch.cdist(features, means).argmin(dim=1) == moon).float().mean()

    before, after = (told_apart(smoothed_by(amount, points)) for amount in (0.0, 0.99))
    assert before < 0.8
    assert after > 0.9


@pytest.mark.parametrize("chunk", [7, 500])
def test_examples_outside_the_graph_look_up_their_neighbours(chunk):
    """A few examples carry the walks; the others end up where their neighbours are."""
    points = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)) * 0.1
    points[150:] += 5
    found = smoothed_by(0.9, points, chunk=chunk, most_inside=100)
    assert found.shape == points.shape
    assert found[:150].std(dim=0).max() < 0.04
    assert found[150:].std(dim=0).max() < 0.04
    assert (found[150:] - found[:150]).min() > 4


@pytest.mark.parametrize("count", [2, 5, 30])
def test_examples_that_are_all_the_same_stay_so(count):
    same = torch.full((count, 3), 0.7)
    torch.testing.assert_close(smoothed_by(0.95, same), same)


def test_others_are_smoothed_as_those_outside_the_graph_are():
    points = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    versions, walks = smoothed(points.clone(), torch.Generator(), NeighbourConstants(most_inside=50))
    outside = torch.cdist(points, walks.start).amin(dim=1) > 1e-3
    assert outside.sum() == 30
    for version, again in zip(versions, walks.smoothed(points[outside]), strict=True):
        torch.testing.assert_close(again, version[outside])


@pytest.mark.parametrize("group", [1, 3, 7])
def test_the_least_of_groups_are_the_least_of_all(group):
    values = torch.rand(20, 84, generator=torch.Generator().manual_seed(0))
    least, places = _least(values, 5, group)
    expected = values.topk(5, largest=False)
    assert torch.equal(least, expected.values)
    assert torch.equal(places, expected.indices)
