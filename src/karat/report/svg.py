"""The parts of a chart as SVG text: a frame with axes, a scale, and elements whose content is escaped."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 46  # room for the axes' text, which is set larger on small screens


def element(tag: str, *content: str, **attributes: object) -> Markup:
    """Return an element; `class_` and `text_anchor` stand for class and text-anchor.

    >>> print(element("text", "a < b", class_="tick", x=1.25))
    <text class="tick" x="1.2">a &lt; b</text>
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(number(value) if isinstance(value, float) else value)}"'
        for name, value in attributes.items()
    )
    inner = Markup("").join(content)
    return Markup(f"<{tag}{written}>{inner}</{tag}>")  # noqa: S704  every part is escaped above, tags are our own


def number(value: float) -> str:
    """Write a coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


def svg_picture(title: str, *content: str, width: int = WIDTH, height: int = HEIGHT, kind: str = "") -> Markup:
    """Return a whole SVG that scales with its column and that a screen reader calls by its title."""
    return element(
        "svg",
        *content,
        class_=f"chart {kind}".strip(),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=title,
    )


@dataclass(frozen=True)
class Scale:
    """A linear map from values to coordinates.

    >>> Scale(0.0, 10.0, 100.0, 200.0)(2.5)
    125.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about so many round values from low to high.

    >>> ticks(0, 1), ticks(0, 72)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 20.0, 40.0, 60.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(place * step, 10) for place in range(first, math.floor(high / step + 1e-9) + 1)]


def percent(value: float) -> str:
    """Write a share as a percentage.

    >>> percent(0.4), percent(0.025)
    ('40%', '2.5%')
    """
    return f"{100 * value:.3g}%"


def plain(value: float) -> str:
    """Write a number of an axis.

    >>> plain(2.0), plain(0.25), plain(12000.0)
    ('2', '0.25', '12,000')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def frame(
    x: Scale,
    y: Scale,
    x_label: str,
    y_label: str,
    x_format: Callable[[float], str] = plain,
    y_format: Callable[[float], str] = plain,
    x_ticks: Sequence[float] | None = None,
) -> Markup:
    """Return the grid, the ticks and the names of both axes."""
    parts = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in ticks(y.low, y.high):
        height = y(value)
        parts.append(element("line", class_="rule", x1=LEFT, x2=right, y1=height, y2=height))
        parts.append(element("text", y_format(value), class_="tick end", x=LEFT - 7, y=height + 4))
    for value in ticks(x.low, x.high) if x_ticks is None else x_ticks:
        parts.append(element("text", x_format(value), class_="tick middle", x=x(value), y=bottom + 17))
    parts.append(element("line", class_="axis", x1=LEFT, x2=right, y1=bottom, y2=bottom))
    parts.append(element("text", x_label, class_="label middle", x=(LEFT + right) / 2, y=HEIGHT - 6))
    middle = (TOP + bottom) / 2
    turned = f"translate(12 {number(middle)}) rotate(-90)"
    parts.append(element("text", y_label, class_="label middle y-label", transform=turned))
    return Markup("").join(parts)


def axes(x_range: tuple[float, float], y_range: tuple[float, float]) -> tuple[Scale, Scale]:
    """Return the scales of the space inside the frame."""
    return Scale(*x_range, LEFT, WIDTH - RIGHT), Scale(*y_range, HEIGHT - BOTTOM, TOP)
