"""Paired differences from RootSIFT and from RootSIFT with wider patches: wins and losses alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from doap.evaluation.report.table import BenchmarkTable, Entry, difference_interval, format_number, format_units
from doap.evaluation.result import Estimate, Figure

COMPARED_WITH = {
    "rootsift": "Difference from RootSIFT",
    "rootsift-wide": "Difference from RootSIFT at 1.5 times its support (rootsift-wide)",
}
"""Titles of the tables of differences, by the descriptor that all others are compared with."""
MARKS = {"better": "▲", "worse": "▼", "similar": "", "untested": ""}
DIFFERENCE_LEGEND = (
    "Differences with 95 % intervals of paired resamples. ▲ is significantly better and ▼ significantly worse than the "
    "reference; without a mark, the interval contains 0 or there is none."
)


@dataclass(frozen=True)
class Difference:
    """The difference of a figure from that of the reference.

    Attributes:
        value: Figure of the descriptor minus figure of the reference.
        interval: 95 % interval of paired resamples; None if there is none.
        outcome: Whether the interval lies on the better or on the worse side of 0; `untested` without an interval.
        reason: Why there is no interval; empty if there is one.
    """

    value: float
    interval: tuple[float, float] | None
    outcome: Literal["better", "worse", "similar", "untested"]
    reason: str = ""

    def __str__(self) -> str:
        if self.interval is None:
            return f"{_signed(self.value)} {self.reason}"
        low, high = map(_signed, self.interval)
        return f"{_signed(self.value)} [{low}, {high}] {MARKS[self.outcome]}".rstrip()


@dataclass(frozen=True)
class DifferenceTable:
    """The differences of all other descriptors of a table from one of them.

    Attributes:
        title: Title of the table.
        reference: Row that all others are compared with.
        rows: Each other row with its differences by figure, None where a figure is missing; in the order of the table.
    """

    title: str
    reference: Entry
    rows: tuple[tuple[Entry, dict[str, Difference | None]], ...]


def difference_tables(table: BenchmarkTable) -> list[DifferenceTable]:
    """Return a table of differences for each of `COMPARED_WITH` that was evaluated beside other descriptors."""
    by_name = {entry.result.descriptor.name.lower(): entry for entry in reversed(table.entries)}
    tables = []
    for name, title in COMPARED_WITH.items():
        reference = by_name.get(name)
        others = [entry for entry in table.entries if entry is not reference]
        if reference is None or not others:
            continue
        rows = []
        for entry in others:
            differences = {figure.name: _difference(entry, reference, figure) for figure in table.figures}
            rows.append((entry, differences))
        tables.append(DifferenceTable(title, reference, tuple(rows)))
    return tables


def compare_estimates(one: Estimate, other: Estimate, figure: Figure) -> Difference:
    """Return the difference of two estimates of a figure, one minus the other."""
    value = one.value - other.value
    interval = difference_interval(one, other)
    if interval is None:
        fewest = min((one, other), key=lambda estimate: estimate.units)
        without = one.low is None or other.low is None
        reason = f"no interval ({format_units(fewest.units, figure.unit)})" if without else "not paired"
        return Difference(value, None, "untested", reason)
    low, high = interval
    if low <= 0 <= high:
        return Difference(value, interval, "similar")
    return Difference(value, interval, "better" if (low > 0) == (figure.better == "higher") else "worse")


def _difference(entry: Entry, reference: Entry, figure: Figure) -> Difference | None:
    one, other = entry.estimate(figure.name), reference.estimate(figure.name)
    return compare_estimates(one, other, figure) if one and other else None


def _signed(value: float) -> str:
    # Both signs of a rounded 0 would be misleading.
    text = format_number(abs(value))
    return text if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"
