"""Charts as inline SVG.

A `style` is a CSS class; the style sheet in `html.page` defines its colour. Text is plain and is
escaped here. Values that are not finite are not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import compress, product

from doap._support.html.axes import Axis, Scale, draw_x, draw_y

Box = tuple[float, float, float, float]  # left, top, right, bottom
Point = tuple[float, float]

LETTER_WIDTH = 7.2  # average width of a letter in pixels, rounded up
MAX_LABEL = 17  # letters; longer labels are shortened because they would not fit beside a chart
MAX_MARKS = 200  # circles on a line
# Positions of a label relative to its dot: up or down, away from it, and to the right or the left; nearest first.
LABEL_OFFSETS = sorted(
    product((0, *range(-63, 0, 9), *range(9, 64, 9)), (8, 30), (1, -1)),
    key=lambda offset: (math.hypot(offset[0], offset[1]), -offset[2]),
)
MAX_VISIBLE_MARKS = 30  # with more circles, each is only visible under the pointer


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


@dataclass(frozen=True)
class Dot:
    """A labelled dot of a scatter chart; the title is its tooltip."""

    label: str
    style: str
    x: float
    y: float
    title: str


def line_chart(title: str, note: str, lines: Sequence[Line], x: Axis, y: Axis, height: int = 214) -> str:
    """Draw lines over a common x axis, later lines on top; labels at their ends do not overlap."""
    left, right, top = 46, 330, 24 if y.name else 12
    lines = [shown for line in lines if (shown := _shown(line, x, y)).points]
    if not lines:
        return _figure(title, note, "<p class=soft>No values yet.</p>")
    scale_x = x.scale((at for line in lines for at, _ in line.points), left, right)
    scale_y = y.scale((value for line in lines for _, value in line.points), height, top)
    svg = draw_x(scale_x, height, x.name) + draw_y(scale_y, left, right, y.name)
    ends: list[tuple[Point, Line]] = []
    for line in lines:
        points = [(scale_x(at), scale_y(value)) for at, value in line.points]
        path = "L".join(f"{at:.1f} {value:.1f}" for at, value in _thinned(points))
        svg.append(f"<path class='{line.style}' d='M{path}'>{_title(line.title)}</path>")
        svg += _line_marks(points, line.marks)
        if line.label:
            ends.append((points[-1], line))
    svg += _line_labels(ends, right, height)
    return _figure(title, note, _svg(title, 440, height + (36 if x.name else 24), svg))


def dot_chart(title: str, note: str, rows: Sequence[Whisker], x: Axis, reference: float | None = None) -> str:
    """Draw one value with its interval per row, on a common axis; a dashed line marks the reference."""
    left, right, top, step = 134, 332, 4, 17
    bottom = top + step * len(rows) + 2
    scale = x.scale((value for row in rows for value in (row.value, row.low, row.high)), left, right)
    svg = draw_x(scale, bottom, x.name, grid_to=top)
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
            svg.append(_mark(row.style, scale(row.value), y))
        svg.append("</g>")
    return _figure(title, note, _svg(title, 340, bottom + (36 if x.name else 24), svg))


def scatter_chart(
    title: str, note: str, dots: Sequence[Dot], x: Axis, y: Axis, frontier: str = "", height: int = 260
) -> str:
    """Draw labelled dots.

    Args:
        title, note: Caption of the chart.
        dots: A label that fits nowhere near its dot is left out.
        x, y: Axes; a smaller x is better.
        frontier: `higher` or `lower`, the better direction of y, to draw the Pareto frontier; empty for none.
        height: Position of the x axis, in pixels from the top. A higher chart has space for more labels.
    """
    left, right, top, bottom = 46, 424, 24, height
    dots = [dot for dot in dots if x.shows(dot.x) and y.shows(dot.y)]
    scale_x, scale_y = x.scale((dot.x for dot in dots), left, right), y.scale((dot.y for dot in dots), bottom, top)
    svg = draw_x(scale_x, bottom, x.name) + draw_y(scale_y, left, right, y.name)
    if frontier and dots:
        svg.append(_frontier(dots, scale_x, scale_y, frontier, right))
    centres = [(scale_x(dot.x), scale_y(dot.y)) for dot in dots]
    marks = [f"<g>{_title(dot.title)}{_mark(dot.style, *at)}</g>" for dot, at in zip(dots, centres, strict=True)]
    leads, labels = _dot_labels([dot.label for dot in dots], centres, (left, top - 8, 440, bottom + 8))
    return _figure(title, note, _svg(title, 440, bottom + 36, [*svg, *leads, *marks, *labels]))


def histogram_chart(
    title: str, note: str, edges: Sequence[float], shares: Sequence[tuple[str, Sequence[float]]]
) -> str:
    """Draw histograms with common bins as filled steps.

    Args:
        title, note: Caption of the chart.
        edges: B + 1 bin edges, increasing.
        shares: CSS class and B shares of each histogram.
    """
    left, right, top, bottom = 4, 176, 4, 70
    scale_x = Scale(edges[0], edges[-1], left, right)
    scale_y = Scale(0, max((share for _, kind in shares for share in kind), default=1) or 1, bottom, top)
    svg = []
    for style, kind in shares:
        steps = zip(edges[1:], kind, strict=True)
        path = "".join(f"V{scale_y(share):.1f}H{scale_x(edge):.1f}" for edge, share in steps)
        svg.append(f"<path class='{style}' d='M{left} {bottom}{path}V{bottom}z'/>")
    svg.append(f"<path d='M{left} {bottom}H{right}'/>")
    for tick in scale_x.ticks(5):
        svg.append(f"<text x={scale_x(tick):.1f} y={bottom + 14} text-anchor=middle>{tick:g}</text>")
    return _figure(title, note, _svg(title, 180, bottom + 18, svg))


def _line_marks(points: Sequence[Point], marks: Sequence[str]) -> list[str]:
    """Draw circles with tooltips on a line; they stay invisible until hovered if there are many."""
    marked = list(zip(points, marks, strict=True)) if marks else []
    quiet = " class=quiet" if len(marked) > MAX_VISIBLE_MARKS else ""
    return [
        f"<circle cx={at:.1f} cy={value:.1f} r=3{quiet}>{_title(mark)}</circle>"
        for (at, value), mark in marked[:: len(marked) // MAX_MARKS + 1]
    ]


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


def _frontier(dots: Sequence[Dot], scale_x: Scale, scale_y: Scale, better: str, right: float) -> str:
    """Draw a staircase through the dots that no dot with a smaller or equal x beats."""
    path, best = "", -math.inf
    sign = 1 if better == "higher" else -1
    for dot in sorted(dots, key=lambda dot: (dot.x, -sign * dot.y)):
        if sign * dot.y > best:
            best = sign * dot.y
            step = f"H{scale_x(dot.x):.1f}V" if path else f"M{scale_x(dot.x):.1f} "
            path += f"{step}{scale_y(dot.y):.1f}"
    return f"<path class=reference d='{path}H{right}'/>"


def _dot_labels(labels: Sequence[str], centres: Sequence[Point], inside: Box) -> tuple[list[str], list[str]]:
    """Put each label at the nearest free position beside its dot; return lead lines and texts."""
    taken: list[Box] = []
    leads, texts = [], []
    for number, (label, (x, y)) in enumerate(zip(labels, centres, strict=True)):
        # Right beside another dot, it would seem to be the label of that one.
        others = [(x - 12, y - 5, x + 12, y + 5) for x, y in (*centres[:number], *centres[number + 1 :])]
        width = LETTER_WIDTH * len(_clipped(label))
        for down, away, side in LABEL_OFFSETS:
            begin, middle = x + away * side, y + down
            box = (min(begin, begin + width * side), middle - 6, max(begin, begin + width * side), middle + 6)
            if not _contains(inside, box) or _meets(box, taken + others):
                continue
            taken.append(box)
            if down or away > 8:
                leads.append(f"<path class=lead d='M{x:.1f} {y:.1f}L{begin - side:.1f} {middle:.1f}'/>")
            anchor = "start" if side > 0 else "end"
            texts.append(f"<text x={begin:.1f} y={middle + 4:.1f} text-anchor={anchor}>{_label(label)}</text>")
            break
    return leads, texts


def _figure(title: str, note: str, content: str) -> str:
    small = f" <small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(title)}{small}</figcaption>{content}</figure>"


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    return f"<svg viewBox='0 0 {width} {height}' role=img aria-label='{escape(title)}'>{''.join(parts)}</svg>"


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _mark(style: str, x: float, y: float) -> str:
    # The style sheet rounds the corners of some classes, which makes them discs.
    return f"<rect class='{style}' x={x - 4:.1f} y={y - 4:.1f} width=8 height=8 />"


def _clipped(label: str) -> str:
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


def _label(label: str) -> str:
    return escape(_clipped(label))


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"


def _shown(line: Line, x: Axis, y: Axis) -> Line:
    """Return a line with the points that the axes show."""
    keep = [x.shows(at) and y.shows(value) for at, value in line.points]
    return replace(line, points=list(compress(line.points, keep)), marks=list(compress(line.marks, keep)))


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Drop points less than a pixel from the last kept one: the shape of a long curve needs few points."""
    kept = [points[0]]
    for point in points[1:-1]:
        if math.dist(point, kept[-1]) >= 1:
            kept.append(point)
    return [*kept, points[-1]]


def _apart(wanted: Sequence[float], gap: float, limit: float) -> list[float]:
    """Move sorted positions down until they are a gap apart, then up until the last is within the limit."""
    moved: list[float] = []
    for position in wanted:
        moved.append(max(position, moved[-1] + gap) if moved else position)
    return [min(one, limit - below * gap) for below, one in zip(reversed(range(len(moved))), moved, strict=True)]


def _contains(outer: Box, box: Box) -> bool:
    return box[0] > outer[0] and box[1] > outer[1] and box[2] < outer[2] and box[3] < outer[3]


def _meets(box: Box, taken: Sequence[Box]) -> bool:
    return any(box[0] < r and left < box[2] and box[1] < low and top < box[3] for left, top, r, low in taken)
