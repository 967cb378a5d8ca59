"""Charts as inline SVG; what colours a `style` of them has is said by the page's style sheet.

Text of charts is plain and escaped here. A value that is not finite is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import compress, product

from doap.html.axes import Axis, Scale, draw_x, draw_y

Box = tuple[float, float, float, float]  # left, top, right, bottom

LETTER = 7.2  # width of a letter, on average and generously; a chart cannot ask the browser
LABEL = 15  # letters of a label; a longer one would leave the chart


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        label: at its end; empty for none.
        style: its CSS class.
        points: (x, y) from left to right.
        marks: what a pointer over each point reads; none draws no points.
        title: what a pointer over the line reads.
    """

    label: str
    style: str
    points: Sequence[tuple[float, float]]
    marks: Sequence[str] = ()
    title: str = ""


@dataclass(frozen=True)
class Whisker:
    """A row of a dot chart: a value between the ends of its interval; a strong one has its label in bold."""

    label: str
    style: str
    value: float
    low: float
    high: float
    strong: bool = False


@dataclass(frozen=True)
class Dot:
    """A labelled dot of a scatter chart; a pointer over it reads the title."""

    label: str
    style: str
    x: float
    y: float
    title: str


def line_chart(title: str, note: str, lines: Sequence[Line], x: Axis, y: Axis, height: int = 214) -> str:
    """Lines over a common axis, the later above the earlier; labels at their ends keep a line's distance."""
    left, right, top = 46, 330, 24 if y.name else 12
    lines = [line for line in map(_finite, lines) if line.points]
    if not lines:
        return _figure(title, note, "<p class=soft>No values yet.</p>")
    place_x = x.scale((at for line in lines for at, _ in line.points), left, right)
    place_y = y.scale((value for line in lines for _, value in line.points), height, top)
    svg = draw_x(place_x, height, x.name) + draw_y(place_y, left, right, y.name)
    labels = []
    for line in lines:
        places = [(place_x(at), place_y(value)) for at, value in line.points]
        path = "L".join(f"{at:.1f} {value:.1f}" for at, value in _thinned(places))
        svg.append(f"<path class='{line.style}' d='M{path}'>{_title(line.title)}</path>")
        if line.label:
            labels.append((places[-1], line))
        # Two hundred marks can be told apart; beyond thirty they would hide the line and show under the pointer only.
        marked = list(zip(places, line.marks, strict=True)) if line.marks else []
        quiet = " class=quiet" if len(marked) > 30 else ""
        for (at, value), mark in marked[:: len(marked) // 200 + 1]:
            svg.append(f"<circle cx={at:.1f} cy={value:.1f} r=3{quiet}>{_title(mark)}</circle>")
    # Of lines that end alike the last drawn is named first.
    labels.reverse()
    labels.sort(key=lambda label: label[0][1])
    for ((at, value), line), baseline in zip(labels, _apart([at[1] + 4 for at, _ in labels], 15, height), strict=True):
        svg.append(f"<path class=lead d='M{at:.1f} {value:.1f}L{right + 6} {baseline - 4:.1f}'/>")
        svg.append(f"<text class='{line.style}' x={right + 8} y={baseline:.1f}>{_label(line.label)}</text>")
    return _figure(title, note, _svg(title, 440, height + (36 if x.name else 24), svg))


def dot_chart(title: str, note: str, rows: Sequence[Whisker], x: Axis, reference: float | None = None) -> str:
    """Values as dots on a common axis, one to a row, with their intervals; a dashed line at a reference."""
    left, right, top, step = 122, 332, 4, 17
    bottom = top + step * len(rows) + 2
    place = x.scale((value for row in rows for value in (row.value, row.low, row.high)), left, right)
    svg = draw_x(place, bottom, x.name, grid_to=top)
    if reference is not None and math.isfinite(reference):
        svg.append(f"<path class=reference d='M{place(reference):.1f} {top}V{bottom}'/>")
    for number, row in enumerate(rows):
        y = top + step * (number + 0.5)
        said = f"{row.label} {_number(row.value)} ({_number(row.low)} to {_number(row.high)})"
        svg.append(f"<g>{_title(said)}")
        strong = " class=strong" if row.strong else ""
        svg.append(f"<text{strong} x={left - 8} y={y + 4:.1f} text-anchor=end>{_label(row.label)}</text>")
        if math.isfinite(row.low) and math.isfinite(row.high):
            svg.append(f"<path class='{row.style}' d='M{place(row.low):.1f} {y:.1f}H{place(row.high):.1f}'/>")
        if math.isfinite(row.value):
            svg.append(_mark(row.style, place(row.value), y))
        svg.append("</g>")
    return _figure(title, note, _svg(title, 340, bottom + (36 if x.name else 24), svg))


def scatter_chart(title: str, note: str, dots: Sequence[Dot], x: Axis, y: Axis, frontier: str = "") -> str:
    """Labelled dots.

    Args:
        title, note: above it.
        dots: a label goes to the nearest free place beside its dot, or is left out if there is none.
        x, y: the axes; a smaller x is taken for better.
        frontier: `higher` or `lower`, the better way of y: a line that nothing is beyond; empty for none.
    """
    left, right, top, bottom = 46, 424, 24, 260
    dots = [dot for dot in dots if math.isfinite(dot.x) and math.isfinite(dot.y)]
    place_x, place_y = x.scale((dot.x for dot in dots), left, right), y.scale((dot.y for dot in dots), bottom, top)
    svg = draw_x(place_x, bottom, x.name) + draw_y(place_y, left, right, y.name)
    if frontier and dots:
        path, best = "", -math.inf
        for dot in sorted(dots, key=lambda dot: (dot.x, -dot.y if frontier == "higher" else dot.y)):
            if (value := dot.y if frontier == "higher" else -dot.y) > best:
                best = value
                across = f"H{place_x(dot.x):.1f}V" if path else f"M{place_x(dot.x):.1f} "
                path += f"{across}{place_y(dot.y):.1f}"
        svg.append(f"<path class=reference d='{path}H{right}'/>")
    places = [(place_x(dot.x), place_y(dot.y)) for dot in dots]
    taken: list[Box] = [(at - 5, value - 5, at + 5, value + 5) for at, value in places]
    above = [f"<g>{_title(dot.title)}{_mark(dot.style, *at)}</g>" for dot, at in zip(dots, places, strict=True)]
    for dot, (at, value) in zip(dots, places, strict=True):
        width = LETTER * len(_clipped(dot.label))
        for down, side in product((0, -9, 9, -18, 18, -27, 27), (1, -1)):
            begin, middle = at + 8 * side, value + down
            box = (min(begin, begin + width * side), middle - 6, max(begin, begin + width * side), middle + 6)
            if box[0] > left and box[2] < 440 and box[1] > top - 8 and box[3] < bottom + 8 and not _meets(box, taken):
                taken.append(box)
                if down:
                    svg.append(f"<path class=lead d='M{at:.1f} {value:.1f}L{begin - side:.1f} {middle:.1f}'/>")
                anchor = "start" if side > 0 else "end"
                label = _label(dot.label)
                above.append(f"<text x={begin:.1f} y={middle + 4:.1f} text-anchor={anchor}>{label}</text>")
                break
    return _figure(title, note, _svg(title, 440, bottom + 36, svg + above))


def histogram_chart(
    title: str, note: str, edges: Sequence[float], shares: Sequence[tuple[str, Sequence[float]]]
) -> str:
    """Filled steps over common bins.

    Args:
        title, note: above it.
        edges: B + 1, increasing.
        shares: of each kind its style and its B shares.
    """
    left, right, top, bottom = 4, 176, 4, 70
    place_x = Scale(edges[0], edges[-1], left, right)
    place_y = Scale(0, max((share for _, kind in shares for share in kind), default=1) or 1, bottom, top)
    svg = []
    for style, kind in shares:
        steps = zip(edges[1:], kind, strict=True)
        path = "".join(f"V{place_y(share):.1f}H{place_x(edge):.1f}" for edge, share in steps)
        svg.append(f"<path class='{style}' d='M{left} {bottom}{path}V{bottom}z'/>")
    svg.append(f"<path d='M{left} {bottom}H{right}'/>")
    for tick in place_x.ticks(5):
        svg.append(f"<text x={place_x(tick):.1f} y={bottom + 14} text-anchor=middle>{tick:g}</text>")
    return _figure(title, note, _svg(title, 180, bottom + 18, svg))


def _figure(title: str, note: str, inside: str) -> str:
    small = f" <small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(title)}{small}</figcaption>{inside}</figure>"


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    return f"<svg viewBox='0 0 {width} {height}' role=img aria-label='{escape(title)}'>{''.join(parts)}</svg>"


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _mark(style: str, x: float, y: float) -> str:
    # Rectangles, which the style sheet may round into discs: kinds differ in shape without a word of it here.
    return f"<rect class='{style}' x={x - 4:.1f} y={y - 4:.1f} width=8 height=8 />"


def _clipped(label: str) -> str:
    return label if len(label) <= LABEL else label[: LABEL - 1] + "…"


def _label(label: str) -> str:
    return escape(_clipped(label))


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"


def _finite(line: Line) -> Line:
    keep = [all(map(math.isfinite, point)) for point in line.points]
    return replace(line, points=list(compress(line.points, keep)), marks=list(compress(line.marks, keep)))


def _thinned(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without points less than a pixel from the last one kept: a curve of a million pairs has its shape from few."""
    kept = [places[0]]
    for place in places[1:-1]:
        if math.dist(place, kept[-1]) >= 1:
            kept.append(place)
    return [*kept, places[-1]]


def _apart(wanted: Sequence[float], gap: float, most: float) -> list[float]:
    """Sorted places moved until each is a gap from the next, and back up from below `most` if they went there."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + gap) if placed else place)
    return [min(place, most - below * gap) for below, place in zip(reversed(range(len(placed))), placed, strict=True)]


def _meets(box: Box, others: Sequence[Box]) -> bool:
    return any(box[0] < r and left < box[2] and box[1] < low and top < box[3] for left, top, r, low in others)
