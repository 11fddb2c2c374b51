"""The charts of a report, as SVG: lines, histogram, scatter and heat map; colours are CSS classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from karat.audit.estimate import wilson
from karat.report.svg import axes, element, frame, number, percent, plain, svg_picture, ticks

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One line of a chart: (x, y) points, the number of its colour, and whether it is dashed."""

    name: str
    points: Sequence[tuple[float, float | None]]
    colour: int
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """A drawing with what is written around it; the legend is (name, colour number, dashed)."""

    title: str
    drawing: Markup
    explanation: str = ""
    legend: Sequence[tuple[str, int, bool]] = ()


def line_chart(title: str, lines: Sequence[Line], y_label: str, shares: bool, explanation: str = "") -> Chart | None:
    """Draw lines over epochs; a missing value interrupts its line. None where there is nothing to draw."""
    known = [(x, y) for line in lines for x, y in line.points if _finite(y)]
    if not known:
        return None
    right = max(x for x, _ in known)
    heights = [y for _, y in known if y is not None]
    top = 1.0 if shares else max(*heights, 0.0) * 1.05 or 1.0
    x, y = axes((0.0, max(right, 1.0)), (min(0.0, *heights), top))
    whole = [value for value in ticks(0.0, x.high) if value == int(value)]
    parts = [frame(x, y, "epoch", y_label, y_format=percent if shares else plain, x_ticks=whole)]
    for line in lines:
        kind = f"line s{line.colour}" + (" dashed" if line.dashed else "")
        path = _path([(x(place), None if not _finite(value) else y(value)) for place, value in line.points])  # type: ignore[arg-type]
        last = next((value for _, value in reversed(line.points) if _finite(value)), None)
        if last is None:
            continue
        shown = percent(last) if shares else f"{last:.3g}"
        parts.append(element("path", element("title", f"{line.name}: {shown} at the end"), class_=kind, d=path))
    legend = [(line.name, line.colour, line.dashed) for line in lines]
    return Chart(title, svg_picture(title, *parts), explanation, legend)


def histogram(
    title: str, groups: Sequence[tuple[str, int, Values]], x_label: str, explanation: str = "", bins: int = 36
) -> Chart | None:
    """Draw how often values occur, the groups on top of each other; the largest values share the last bar."""
    everything = np.concatenate([values[np.isfinite(values)] for _, _, values in groups])
    if not len(everything):
        return None
    low, high = min(0.0, float(everything.min())), float(np.quantile(everything, 0.995))
    high = high if high > low else low + 1.0
    edges = np.linspace(low, high, bins + 1)
    counts = [np.histogram(values[np.isfinite(values)].clip(low, high), edges)[0] for _, _, values in groups]
    x, y = axes((low, high), (0.0, float(np.sum(counts, axis=0).max()) * 1.05))
    parts = [frame(x, y, x_label, "examples")]
    below = np.zeros(bins)
    for (name, colour, _), heights in zip(groups, counts, strict=True):
        for place in np.flatnonzero(heights):
            left, right = x(edges[place]) + 0.5, x(edges[place + 1]) - 0.5
            top, bottom = y(below[place] + heights[place]), y(below[place])
            tip = f"{name}: {heights[place]:,} from {edges[place]:.2f} to {edges[place + 1]:.2f}"
            bar = {"x": left, "y": top, "width": right - left, "height": bottom - top}
            parts.append(element("rect", element("title", tip), class_=f"bar f{colour}", **bar))
        below = below + heights
    legend = [(name, colour, False) for name, colour, _ in groups]
    return Chart(title, svg_picture(title, *parts), explanation, legend)


def scatter(
    title: str, groups: Sequence[tuple[str, int, Values]], x_label: str, y_label: str, explanation: str = ""
) -> Chart | None:
    """Draw points (x, y); a group is one path of round dots, so that thousands stay small."""
    finite = [(name, colour, points[np.isfinite(points).all(axis=1)]) for name, colour, points in groups]
    everything = np.concatenate([points for _, _, points in finite])
    if not len(everything):
        return None
    high = [float(value) or 1.0 for value in np.quantile(everything, 0.998, axis=0) * 1.03]
    x, y = axes((0.0, high[0]), (0.0, high[1]))
    parts = [frame(x, y, x_label, y_label)]
    for _, colour, points in finite:
        kept = points.clip(0.0, high)
        dots = "".join(f"M{number(x(a))} {number(y(b))}h0" for a, b in kept.tolist())
        parts.append(element("path", class_=f"dots s{colour}", d=dots))
    legend = [(f"{name}", colour, False) for name, colour, _ in finite]
    return Chart(title, svg_picture(title, *parts), explanation, legend)


@dataclass(frozen=True)
class ReliabilityPoint:
    """Some labels: how many, the mean probability that they claim to be right with, the share that is right."""

    count: int
    claimed: float
    right: float


def reliability_chart(title: str, points: Sequence[ReliabilityPoint], explanation: str = "") -> Chart:
    """Draw the share of right labels over the claimed one; a line through a dot is the 95% interval of its share."""
    x, y = axes((-0.05, 1.05), (-0.05, 1.2))
    fifths = [place / 5 for place in range(6)]
    claim = "label quality: claimed probability that the label is right"
    parts = [frame(x, y, claim, "really right", percent, percent, x_ticks=fifths)]
    diagonal = f"M{number(x(0))} {number(y(0))}L{number(x(1))} {number(y(1))}"
    parts.append(element("path", class_="line s3 dashed", d=diagonal))
    total = sum(point.count for point in points)
    for point in points:
        low, high = wilson(point.right, point.count)
        tip = f"{point.count:,} labels claim {point.claimed:.1%} and {point.right:.1%} of them are right"
        path = f"M{number(x(point.claimed))} {number(y(low))}V{number(y(high))}"
        place = {"cx": x(point.claimed), "cy": y(point.right), "r": 3 + 12 * math.sqrt(point.count / total)}
        parts.append(element("path", class_="line s0", d=path))
        parts.append(element("circle", element("title", tip), class_="f0", fill_opacity="0.55", **place))
        middle = (min(int(10 * point.claimed), 9) + 0.5) / 10
        parts.append(element("text", f"{point.count:,}", class_="tick middle", x=x(middle), y=y(1.13)))
    legend = [("labels of one tenth of the scale; their number above", 0, False), ("keeps its word", 3, True)]
    return Chart(title, svg_picture(title, *parts), explanation, legend)


def heat_map(
    title: str, matrix: Sequence[Sequence[float | None]], names: Sequence[str], explanation: str = ""
) -> Chart:
    """Draw transition[true, given]: right labels in one colour, wrong ones in another that has its own scale."""
    size, count = 480, len(names)
    left = top = 26 + min(66, max(6 * len(short(name)) for name in names))
    cell = (size - left - 36) / count  # room for the last name, which is turned
    wrong = [value for row, values in enumerate(matrix) for column, value in enumerate(values) if row != column]
    most = max((value for value in wrong if _finite(value) and value is not None), default=0.0)
    most = max(most, 0.2)  # so that evenly spread noise does not look like a strong confusion
    parts: list[Markup] = []
    for row, values in enumerate(matrix):
        middle = top + (row + 0.5) * cell
        parts.append(element("text", short(names[row]), class_="tick end", x=left - 6, y=middle + 4))
        turned = f"translate({number(left + (row + 0.5) * cell + 4)} {top - 6}) rotate(-50)"
        parts.append(element("text", short(names[row]), class_="tick", transform=turned))
        for column, value in enumerate(values):
            if value is None or not _finite(value):
                continue
            right = row == column
            strength = 0.1 + 0.45 * value if right else 0.85 * value / most
            place = {"x": left + column * cell + 0.5, "y": top + row * cell + 0.5}
            box = {**place, "width": cell - 1, "height": cell - 1, "rx": 2}
            tip = f"true {names[row]}, given {names[column]}: {value:.1%}"
            kind = "f0" if right else "f1"
            parts.append(element("rect", element("title", tip), class_=kind, fill_opacity=f"{strength:.3f}", **box))
            if count <= 12 and value >= 0.005:
                at = {"x": left + (column + 0.5) * cell, "y": middle + 4}
                parts.append(element("text", f"{100 * value:.0f}", class_="cell middle", **at))
    parts.append(element("text", "given label", class_="label end", x=size - 36, y=size - 16))
    parts.append(element("text", "true label", class_="label", x=2, y=size - 16))
    drawing = svg_picture(title, *parts, width=size, height=size - 10, kind="heat")
    return Chart(title, drawing, explanation, [("right label", 0, False), ("wrong label", 1, False)])


def bar(share: float, colour: int = 1) -> Markup:
    """Return a small horizontal bar for a table."""
    width = 100 * min(max(share, 0.0), 1.0)
    inside = element("rect", class_=f"f{colour}", width=width, height=8, rx=2)
    track = element("rect", class_="track", width=100, height=8, rx=2)
    return element("svg", track, inside, class_="meter", viewBox="0 0 100 8", aria_hidden="true")


def short(name: str, length: int = 12) -> str:
    """Cut a long name for an axis.

    >>> short("golden retriever")
    'golden retr…'
    """
    name = " ".join(name.split())
    return name if len(name) <= length else name[: length - 1] + "…"


def series(records: Sequence[dict[str, Any]], key: str) -> list[tuple[float, float | None]]:
    """Return (epoch, value) of one of the metrics; None where a record lacks it."""
    return [(float(record["epoch"]), float(record[key]) if _finite(record.get(key)) else None) for record in records]


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    """Return the path through the points; one alone is a dot."""
    written, pen = [], "M"
    for place, height in points:
        if height is None:
            pen = "M"
            continue
        written.append(f"{pen}{number(place)} {number(height)}" + ("h0" if pen == "M" else ""))
        pen = "L"
    return "".join(written)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
