"""Curves over time as inline SVG, for a page that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from doap.training.log import Point

Curve = tuple[str, str, Sequence[Point]]  # the label at its end, its CSS class, its points
WIDTH, LEFT, RIGHT, TOP = 480, 50, 374, 12


def chart(title: str, note: str, curves: list[Curve], end: float, log: bool = False, small: bool = False) -> str:
    """Inline SVG of curves over time, from 0 to `end` in all charts alike; the values of a small one begin at 0."""
    caption = f"<figcaption>{title} <small>{note}</small></figcaption>"
    if not any(drawn for _, style, drawn in curves if style == "ours"):
        return f"<figure>{caption}<p class=soft>No values yet.</p></figure>"
    values = [value for _, _, drawn in curves for _, _, value in drawn]
    scale = math.log10 if log else float
    low, high = scale(0.0 if small else min(values)), scale(max(values))
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low if small else low - margin, high + margin
    bottom, (_, sign, size) = 80 if small else 214, unit(end)

    def x(time: float) -> float:
        return LEFT + (RIGHT - LEFT) * time / (end or 1)

    def y(value: float) -> float:
        return bottom - (bottom - TOP) * (scale(value) - low) / (high - low)

    svg, labels = [], []
    for tick in _log_ticks(low, high) if log else _ticks(low, high, 3 if small else 6):
        svg.append(f"<path d='M{LEFT} {y(tick):.1f}H{RIGHT}'/>")
        svg.append(f"<text x={LEFT - 6} y={y(tick) + 4:.1f} text-anchor=end>{tick:g}</text>")
    for tick in _ticks(0, end / size, 6):
        text = f"{tick:g}" if tick else f"0 {sign}"
        svg.append(f"<text x={x(tick * size):.1f} y={bottom + 18} text-anchor=middle>{text}</text>")
    for label, style, drawn in curves:
        line = "L".join(f"{x(time):.1f} {y(value):.1f}" for time, _, value in drawn)
        svg.append(f"<path class={style} d='M{line}'/>")
        if style != "raw":
            labels.append((y(drawn[-1][2]), style, f"{label} {_short(drawn[-1][2])}"))
        for time, step, value in drawn[:: len(drawn) // 200 + 1] if style == "ours" else ():
            place = f"cx={x(time):.1f} cy={y(value):.1f} r=3" + (" class=quiet" if len(drawn) > 30 else "")
            svg.append(f"<circle {place}><title>{value:.4g} after {clock(time)}, step {step}</title></circle>")
    # From the top down, each label at least one line below the one before.
    baseline = -math.inf
    for wanted, style, label in sorted(labels):
        baseline = max(wanted + 4, baseline + 15)
        svg.append(f"<text class={style} x={RIGHT + 8} y={baseline:.1f}>{escape(label)}</text>")
    box = f"viewBox='0 0 {WIDTH} {bottom + 26}' role=img aria-label='{title}'"
    return f"<figure>{caption}<svg {box}>{''.join(svg)}</svg></figure>"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high, at most so many."""
    tenth = 10.0 ** math.floor(math.log10((high - low) or 1) - 1)
    step = next(tenth * times for times in (1, 2, 5, 10, 20, 50) if high - low < most * tenth * times)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade from 10^low to 10^high, or the decades alone where these would be many."""
    digits = (1, 2, 5) if high - low < 2 else (1,)
    marks = [digit * 10.0**power for power in range(math.floor(low), math.ceil(high)) for digit in digits]
    return [mark for mark in marks if low <= math.log10(mark) <= high]


def unit(seconds: float) -> tuple[str, str, int]:
    """The unit that keeps a time readable: its word, its sign and its seconds."""
    if seconds < 180:
        return "second", "s", 1
    return ("minute", "min", 60) if seconds < 3 * 3600 else ("hour", "h", 3600)


def clock(seconds: float) -> str:
    _, sign, size = unit(seconds)
    return f"{seconds / size:.3g} {sign}"
