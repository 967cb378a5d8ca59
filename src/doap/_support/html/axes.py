"""Chart axes: map values to SVG coordinates and draw tick labels and grid lines."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from itertools import product

MARGIN = 0.06
"""Margin at each end of an axis, as a share of the range of the values."""


@dataclass(frozen=True)
class Axis:
    """The range and label of a chart axis.

    Attributes:
        name: Axis label.
        low, high: Limits of the axis; None takes the limit from the values, with a margin.
        base: Base of a logarithmic axis, 2 or 10; None for a linear axis.
    """

    name: str = ""
    low: float | None = None
    high: float | None = None
    base: int | None = None

    def shows(self, value: float) -> bool:
        """Return whether a value has a position on the axis: it is finite, and above 0 if the axis is logarithmic."""
        return math.isfinite(value) and (self.base is None or value > 0)

    def spanning(self, values: Iterable[float]) -> Axis:
        """Return the axis with missing limits taken from the values that it shows, plus a margin."""
        shown = [math.log10(value) if self.base else value for value in values if self.shows(value)]
        low, high = min(shown, default=0.0), max(shown, default=1.0)
        margin = MARGIN * (high - low) or 0.1 * abs(high) or 1.0
        low, high = (10.0**end if self.base else end for end in (low - margin, high + margin))
        return replace(self, low=low if self.low is None else self.low, high=high if self.high is None else self.high)

    def scale(self, values: Iterable[float], start: float, end: float) -> Scale:
        """Return the mapping of this axis to the coordinates `start` to `end`."""
        axis = self.spanning(values)
        assert axis.low is not None
        assert axis.high is not None
        return Scale(axis.low, axis.high, start, end, self.base)


@dataclass(frozen=True)
class Scale:
    """A mapping of the values `low` to `high` to the SVG coordinates `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    base: int | None = None

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(part) if self.base else part for part in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / ((high - low) or 1)

    def ticks(self, limit: int) -> list[float]:
        """Return round numbers within the limits of the axis, at most `limit` of them on a linear axis."""
        if self.base is None:
            return _round_numbers(self.low, self.high, limit)
        low, high = math.log(self.low, self.base), math.log(self.high, self.base)
        # 1, 2 and 5 of each decade on a short axis, only the decades on a long one.
        digits = (1, 2, 5) if self.base == 10 and high - low < 2 else (1,)
        powers = range(math.floor(low), math.ceil(high) + 1)
        ticks = [digit * float(self.base) ** power for power, digit in product(powers, digits)]
        inside = [tick for tick in ticks if self.low <= tick <= self.high]
        # A range of less than a decade may contain none of them.
        return inside if len(inside) > 1 else _round_numbers(self.low, self.high, limit)


def draw_x(x: Scale, bottom: float, name: str, grid_to: float | None = None) -> list[str]:
    """Draw the tick labels and the name of the x axis, and vertical grid lines up to `grid_to` if given."""
    svg = []
    for tick in x.ticks(6):
        if grid_to is not None:
            svg.append(f"<path d='M{x(tick):.1f} {bottom}V{grid_to}'/>")
        svg.append(f"<text x={x(tick):.1f} y={bottom + 16} text-anchor=middle>{tick:g}</text>")
    if name:
        svg.append(f"<text x={(x.start + x.end) / 2} y={bottom + 32} text-anchor=middle>{escape(name)}</text>")
    return svg


def draw_y(y: Scale, left: float, right: float, name: str) -> list[str]:
    """Draw the grid lines, the tick labels and the name of the y axis."""
    svg = [f"<text x=0 y=12>{escape(name)}</text>"] if name else []
    for tick in y.ticks(6 if y.start > 100 else 3):
        svg.append(f"<path d='M{left} {y(tick):.1f}H{right}'/>")
        svg.append(f"<text x={left - 6} y={y(tick) + 4:.1f} text-anchor=end>{tick:g}</text>")
    return svg


def _round_numbers(low: float, high: float, limit: int) -> list[float]:
    """Return the multiples of the smallest step of 1, 2, 5, 10, … that has at most `limit` of them."""
    # Numbers that differ by less than floats can resolve have no ticks between them.
    if not high - low > 1e-12 * max(abs(low), abs(high)):
        return [low]
    tenth = 10.0 ** math.floor(math.log10(high - low) - 1)
    steps = [tenth * times for times in (1, 2, 5, 10, 20, 50)]
    ticks = [[step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)] for step in steps]
    return next(some for some in ticks if len(some) <= limit)
