"""Charts as numbers: what is drawn stands where the values say."""

import re
from types import SimpleNamespace

import numpy as np

from karat.report.charts import Line, heat_map, histogram, line_chart, scatter
from karat.report.sections import curves
from karat.report.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH


def test_a_line_goes_through_its_values_and_stops_where_one_is_missing():
    """From epoch 0 to 4 across the frame, from 0 at the bottom to 1 at the top."""
    points = [(0.0, 0.0), (2.0, 0.5), (3.0, None), (4.0, 1.0)]
    chart = line_chart("t", [Line("a", points, 0)], "share", shares=True)
    middle = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    assert f'd="M{LEFT} {HEIGHT - BOTTOM}h0L{middle[0]:.0f} {middle[1]:.0f}M{WIDTH - RIGHT} {TOP}h0"' in chart.drawing


def test_every_term_of_the_loss_is_drawn_whatever_the_method_calls_it():
    record = {"step": 6, "epoch": 1.0, "rate": 0.1, "seconds": 2.0, "trusted_accuracy": 0.5, "zero_weight_share": 0.1}
    run = SimpleNamespace(name="run", metrics=[{**record, "weak": 1.0, "partner_loss": 2.0, "loss": 3.0}])
    _, losses = curves(run)
    assert [name for name, _, dashed in losses.legend] == ["total", "weak", "partner loss"]


def test_nothing_to_draw_is_no_chart():
    assert line_chart("t", [Line("a", [(1.0, None)], 0)], "share", shares=True) is None
    assert histogram("t", [("a", 0, np.array([np.nan]))], "x") is None
    assert scatter("t", [("a", 0, np.full((2, 2), np.nan))], "x", "y") is None


def test_a_histogram_counts_every_finite_value_once():
    values = np.concatenate([np.linspace(0, 2, 97), [1e6, np.nan]])
    chart = histogram("t", [("a", 0, values), ("b", 1, values[:10])], "x")
    found = [(name, int(count)) for name, count in re.findall(r"<title>(\w): ([\d,]+) from", chart.drawing)]
    assert sum(count for name, count in found if name == "a") == 98
    assert sum(count for name, count in found if name == "b") == 10


def test_a_scatter_has_a_dot_for_each_point_inside_the_frame():
    points = np.array([[0.0, 0.0], [1.0, 1.0], [np.nan, 1.0], [0.5, 500.0]])
    chart = scatter("t", [("a", 0, points)], "x", "y")
    dots = re.findall(r"M([\d.]+) ([\d.]+)h0", chart.drawing)
    assert len(dots) == 3
    assert all(LEFT <= float(x) <= WIDTH - RIGHT and TOP <= float(y) <= HEIGHT - BOTTOM for x, y in dots)


def test_a_heat_map_says_each_cell_and_escapes_names():
    chart = heat_map("t", [[0.75, 0.25], [None, 1.0]], ["<b>", "dog"])
    assert "<title>true &lt;b&gt;, given dog: 25.0%</title>" in chart.drawing
    assert "<b>" not in chart.drawing
    assert chart.drawing.count("<rect") == 3
