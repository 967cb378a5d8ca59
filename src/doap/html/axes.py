"""Axes of charts: where values lie in a drawing, and the round numbers beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from itertools import product


@dataclass(frozen=True)
class Axis:
    """What an axis spans.

    Attributes:
        name: written beside it.
        low, high: its ends; None leaves an end to the values, with some room.
        base: of a logarithmic axis, 2 or 10; None is a linear one.
    """

    name: str = ""
    low: float | None = None
    high: float | None = None
    base: int | None = None

    def spanning(self, values: Iterable[float]) -> Axis:
        """The axis with the ends it was given, or else those of the values, with some room."""
        within = [math.log10(value) if self.base else value for value in values if math.isfinite(value)]
        low, high = min(within, default=0.0), max(within, default=1.0)
        room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        low, high = (10.0**end if self.base else end for end in (low - room, high + room))
        return replace(self, low=low if self.low is None else self.low, high=high if self.high is None else self.high)

    def scale(self, values: Iterable[float], start: float, end: float) -> Scale:
        """Where the axis lies if drawn from `start` to `end` for these values."""
        axis = self.spanning(values)
        assert axis.low is not None
        assert axis.high is not None
        return Scale(axis.low, axis.high, start, end, self.base)


@dataclass(frozen=True)
class Scale:
    """Where the values from `low` to `high` lie in a drawing, from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    base: int | None = None

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(part) if self.base else part for part in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / ((high - low) or 1)

    def ticks(self, most: int) -> list[float]:
        """Round numbers between the ends: at most so many of a linear axis."""
        if self.base is None:
            return _round_numbers(self.low, self.high, most)
        low, high = math.log(self.low, self.base), math.log(self.high, self.base)
        # 1, 2 and 5 of each decade, or the decades alone where these would be many.
        digits = (1, 2, 5) if self.base == 10 and high - low < 2 else (1,)
        powers = range(math.floor(low), math.ceil(high) + 1)
        marks = [digit * float(self.base) ** power for power, digit in product(powers, digits)]
        return [mark for mark in marks if self.low <= mark <= self.high]


def draw_x(x: Scale, bottom: float, name: str, grid_to: float | None = None) -> list[str]:
    """Round numbers below the drawing and the name below them; lines up to `grid_to`."""
    svg = []
    for tick in x.ticks(6):
        if grid_to is not None:
            svg.append(f"<path d='M{x(tick):.1f} {bottom}V{grid_to}'/>")
        svg.append(f"<text x={x(tick):.1f} y={bottom + 16} text-anchor=middle>{tick:g}</text>")
    if name:
        svg.append(f"<text x={(x.start + x.end) / 2} y={bottom + 32} text-anchor=middle>{escape(name)}</text>")
    return svg


def draw_y(y: Scale, left: float, right: float, name: str) -> list[str]:
    """Lines at round numbers, the numbers beside them, and the name above."""
    svg = [f"<text x=0 y=12>{escape(name)}</text>"] if name else []
    for tick in y.ticks(6 if y.start > 100 else 3):
        svg.append(f"<path d='M{left} {y(tick):.1f}H{right}'/>")
        svg.append(f"<text x={left - 6} y={y(tick) + 4:.1f} text-anchor=end>{tick:g}</text>")
    return svg


def _round_numbers(low: float, high: float, most: int) -> list[float]:
    """Multiples of the smallest of 1, 2, 5, 10, … that has at most so many of them."""
    tenth = 10.0 ** math.floor(math.log10((high - low) or 1) - 1)
    steps = [tenth * times for times in (1, 2, 5, 10, 20, 50)]
    marks = [[step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)] for step in steps]
    return next(some for some in marks if len(some) <= most)
