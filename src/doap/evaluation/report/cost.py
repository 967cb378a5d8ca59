"""The first section of a report: accuracy against CPU time, if the results include the benchmark `speed`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from doap._support.html import Axis, Dot, scatter_chart
from doap.evaluation.report.formats import arrow
from doap.evaluation.report.table import BenchmarkTable, Entry, format_number

SPEED = "speed"
PER_IMAGE, PER_PAIR = "s per image", "s per pair"
"""Figures of the benchmark `speed`."""
GEOMETRIC = ("pose", "sfm", "wxbs", "evd", "oxford")
"""Benchmarks whose headline is shown against the time, in this order."""


def cost_section(tables: Sequence[BenchmarkTable]) -> str:
    """Return a chart of the headline of each geometric benchmark against the CPU time; empty without times."""
    timed = [table for table in tables if table.any_result.benchmark == SPEED]
    if not timed:
        return ""
    # Times of different tables are not comparable.
    measured = max(timed, key=lambda table: len(table.entries))
    seconds = seconds_per_pair(measured)
    shown = [table for name in GEOMETRIC for table in tables if table.any_result.benchmark == name]
    charts = [_chart(table, seconds) for table in shown if any(_name(entry) in seconds for entry in table.entries)]
    if not charts:
        return ""
    legend = (
        f"CPU time of an image pair: twice “{PER_IMAGE}” (detection and description) plus “{PER_PAIR}” (matching), as "
        f"measured by <a href='#{measured.key}'>{escape(measured.name)}</a>. "
        "<span class=real>●</span> real-valued descriptor, <span class=binary>■</span> binary descriptor, "
        "<span class=pipeline>◆</span> pipeline with its own keypoints and matcher. Dashed: best at this time or less."
    )
    return (
        f"<section><h2 id=cost>Accuracy and CPU time</h2><p class=soft>{legend}</p>"
        f"<div class=charts>{''.join(charts)}</div></section>"
    )


def seconds_per_pair(table: BenchmarkTable) -> dict[str, float]:
    """Return the CPU seconds of an image pair by descriptor: two images are described and matched once."""
    seconds = {}
    for entry in table.entries:
        per_image, per_pair = entry.estimate(PER_IMAGE), entry.estimate(PER_PAIR)
        if per_image and per_pair:
            seconds[_name(entry)] = 2 * per_image.value + per_pair.value
    return {name: value for name, value in seconds.items() if value > 0}


def _chart(table: BenchmarkTable, seconds: dict[str, float]) -> str:
    figure = table.figures[0]
    dots = []
    for entry, estimate in table.ranked(figure):
        if time := seconds.get(_name(entry)):
            title = f"{entry.label}: {time:.3g} s, {figure.name} {format_number(estimate.value)}"
            dots.append(Dot(entry.label, entry.style, time, estimate.value, title))
    axes = Axis("CPU seconds per image pair", base=10), Axis(f"{figure.name} {arrow(figure)}")
    return scatter_chart(table.name, "", dots, *axes, frontier=figure.better, height=380)


def _name(entry: Entry) -> str:
    return entry.result.descriptor.name
