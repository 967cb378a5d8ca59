"""Charts as inline SVG: lines over a common x axis, and values with their intervals.

A `style` is a CSS class; the style sheet in `doap._support.html` defines its colour. Text is plain and is escaped here.
Values that have no position on an axis are not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import compress

Point = tuple[float, float]

MARGIN = 0.06
"""Margin at each end of an axis, as a share of the range of the values."""
MAX_LABEL = 17
"""Maximum number of letters of a label beside a chart."""
MAX_MARKS = 60
"""Maximum number of points of a line that are drawn as circles; those of a longer line are not."""


@dataclass(frozen=True)
class Axis:
    """The range and label of a chart axis.

    Attributes:
        name: Axis label.
        low, high: Limits of the axis; None takes the limit from the values, with a margin.
        log: Whether the axis is logarithmic.
    """

    name: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False

    def shows(self, value: float) -> bool:
        """Return whether a value has a position on the axis: it is finite, and above 0 if the axis is logarithmic."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def spanning(self, values: Iterable[float]) -> Axis:
        """Return the axis with missing limits taken from the values that it shows, plus a margin."""
        shown = [math.log10(value) if self.log else value for value in values if self.shows(value)]
        low, high = min(shown, default=0.0), max(shown, default=1.0)
        margin = MARGIN * (high - low) or 0.1 * abs(high) or 1.0
        low, high = (10.0**end if self.log else end for end in (low - margin, high + margin))
        return replace(self, low=low if self.low is None else self.low, high=high if self.high is None else self.high)

    def scale(self, values: Iterable[float], start: float, end: float) -> Scale:
        """Return the mapping of this axis to the coordinates `start` to `end`."""
        axis = self.spanning(values)
        assert axis.low is not None
        assert axis.high is not None
        return Scale(axis.low, axis.high, start, end, self.log)


@dataclass(frozen=True)
class Scale:
    """A mapping of the values `low` to `high` to the SVG coordinates `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(part) if self.log else part for part in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / ((high - low) or 1)

    def ticks(self, limit: int) -> list[float]:
        """Return round numbers within the limits of the axis: decades if it is logarithmic and has two of them."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            if len(powers) > 1:
                return [10.0**power for power in powers]
        return _round_numbers(self.low, self.high, limit)


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        label: Text at the end of the line; empty for none.
        style: CSS class.
        points: (x, y), from left to right.
        marks: Tooltip of each point; empty to draw no points.
        title: Tooltip of the line.
    """

    label: str
    style: str
    points: Sequence[Point]
    marks: Sequence[str] = ()
    title: str = ""


@dataclass(frozen=True)
class Whisker:
    """A row of a dot chart: a value with its interval; the label is bold if `strong`."""

    label: str
    style: str
    value: float
    low: float
    high: float
    strong: bool = False


def line_chart(title: str, note: str, lines: Sequence[Line], x: Axis, y: Axis, height: int = 214) -> str:
    """Draw lines over a common x axis, later lines on top; labels at their ends do not overlap."""
    left, right, top = 46, 330, 24 if y.name else 12
    lines = [shown for line in lines if (shown := _shown(line, x, y)).points]
    if not lines:
        return _figure(title, note, "<p class=soft>No values yet.</p>")
    scale_x = x.scale((at for line in lines for at, _ in line.points), left, right)
    scale_y = y.scale((value for line in lines for _, value in line.points), height, top)
    svg = [*_draw_x(scale_x, height, x.name), *_draw_y(scale_y, left, right, y.name)]
    ends: list[tuple[Point, Line]] = []
    for line in lines:
        points = [(scale_x(at), scale_y(value)) for at, value in line.points]
        path = "L".join(f"{at:.1f} {value:.1f}" for at, value in points)
        svg.append(f"<path class='{line.style}' d='M{path}'>{_title(line.title)}</path>")
        if len(line.marks) <= MAX_MARKS:
            marked = zip(points, line.marks, strict=False)
            svg += [f"<circle cx={at:.1f} cy={value:.1f} r=3>{_title(mark)}</circle>" for (at, value), mark in marked]
        if line.label:
            ends.append((points[-1], line))
    svg += _line_labels(ends, right, height)
    return _figure(title, note, _svg(title, 440, height + (36 if x.name else 24), svg))


def dot_chart(title: str, note: str, rows: Sequence[Whisker], x: Axis, reference: float | None = None) -> str:
    """Draw one value with its interval per row, on a common axis; a dashed line marks the reference."""
    left, right, top, step = 134, 332, 4, 17
    bottom = top + step * len(rows) + 2
    scale = x.scale((value for row in rows for value in (row.value, row.low, row.high)), left, right)
    svg = _draw_x(scale, bottom, x.name, grid_to=top)
    if reference is not None and math.isfinite(reference):
        svg.append(f"<path class=reference d='M{scale(reference):.1f} {top}V{bottom}'/>")
    for number, row in enumerate(rows):
        y = top + step * (number + 0.5)
        svg.append(f"<g>{_title(f'{row.label} {_number(row.value)} ({_number(row.low)} to {_number(row.high)})')}")
        strong = " class=strong" if row.strong else ""
        svg.append(f"<text{strong} x={left - 8} y={y + 4:.1f} text-anchor=end>{_label(row.label)}</text>")
        if math.isfinite(row.low) and math.isfinite(row.high):
            svg.append(f"<path class='{row.style}' d='M{scale(row.low):.1f} {y:.1f}H{scale(row.high):.1f}'/>")
        if math.isfinite(row.value):
            # The style sheet rounds the corners of some classes, which makes them discs.
            at = f"x={scale(row.value) - 4:.1f} y={y - 4:.1f}"
            svg.append(f"<rect class='{row.style}' {at} width=8 height=8 />")
        svg.append("</g>")
    return _figure(title, note, _svg(title, 340, bottom + (36 if x.name else 24), svg))


def _draw_x(x: Scale, bottom: float, name: str, grid_to: float | None = None) -> list[str]:
    """Draw the tick labels and the name of the x axis, and vertical grid lines up to `grid_to` if given."""
    svg = []
    for tick in x.ticks(6):
        if grid_to is not None:
            svg.append(f"<path d='M{x(tick):.1f} {bottom}V{grid_to}'/>")
        svg.append(f"<text x={x(tick):.1f} y={bottom + 16} text-anchor=middle>{tick:g}</text>")
    if name:
        svg.append(f"<text x={(x.start + x.end) / 2} y={bottom + 32} text-anchor=middle>{escape(name)}</text>")
    return svg


def _draw_y(y: Scale, left: float, right: float, name: str) -> list[str]:
    """Draw the grid lines, the tick labels and the name of the y axis."""
    svg = [f"<text x=0 y=12>{escape(name)}</text>"] if name else []
    for tick in y.ticks(6 if y.start > 100 else 3):
        svg.append(f"<path d='M{left} {y(tick):.1f}H{right}'/>")
        svg.append(f"<text x={left - 6} y={y(tick) + 4:.1f} text-anchor=end>{tick:g}</text>")
    return svg


def _line_labels(ends: Sequence[tuple[Point, Line]], right: float, bottom: float) -> list[str]:
    """Write the labels of lines to the right of their ends, top to bottom, without overlap."""
    # The line drawn last is named first among lines that end at the same height.
    ordered = list(reversed(ends))
    ordered.sort(key=lambda end: end[0][1])
    baselines = _apart([end[1] + 4 for end, _ in ordered], 15, bottom)
    svg = []
    for ((at, value), line), baseline in zip(ordered, baselines, strict=True):
        svg.append(f"<path class=lead d='M{at:.1f} {value:.1f}L{right + 6} {baseline - 4:.1f}'/>")
        svg.append(f"<text class='{line.style}' x={right + 8} y={baseline:.1f}>{_label(line.label)}</text>")
    return svg


def _apart(wanted: Sequence[float], gap: float, limit: float) -> list[float]:
    """Move sorted positions down until they are a gap apart, then up until the last is within the limit."""
    moved: list[float] = []
    for position in wanted:
        moved.append(max(position, moved[-1] + gap) if moved else position)
    return [min(one, limit - below * gap) for below, one in zip(reversed(range(len(moved))), moved, strict=True)]


def _round_numbers(low: float, high: float, limit: int) -> list[float]:
    """Return the multiples of the smallest step of 1, 2, 5, 10, … that has at most `limit` of them."""
    # Numbers that differ by less than floats can resolve have no ticks between them.
    if not high - low > 1e-12 * max(abs(low), abs(high)):
        return [low]
    tenth = 10.0 ** math.floor(math.log10(high - low) - 1)
    steps = [tenth * times for times in (1, 2, 5, 10, 20, 50)]
    ticks = [[step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)] for step in steps]
    return next(some for some in ticks if len(some) <= limit)


def _shown(line: Line, x: Axis, y: Axis) -> Line:
    """Return a line with the points that the axes show."""
    keep = [x.shows(at) and y.shows(value) for at, value in line.points]
    return replace(line, points=list(compress(line.points, keep)), marks=list(compress(line.marks, keep)))


def _figure(title: str, note: str, content: str) -> str:
    small = f" <small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(title)}{small}</figcaption>{content}</figure>"


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    return f"<svg viewBox='0 0 {width} {height}' role=img aria-label='{escape(title)}'>{''.join(parts)}</svg>"


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _label(label: str) -> str:
    return escape(label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…")


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"
