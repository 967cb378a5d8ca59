"""The HTML page of a report: the best descriptor first, then figures by part, curves, examples and provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from doap._support.html import (
    Axis,
    Dot,
    Line,
    Whisker,
    dot_chart,
    histogram_chart,
    line_chart,
    scatter_chart,
    setting_tables,
    write_html,
)
from doap._support.text import counted
from doap.evaluation.report.cost import cost_section
from doap.evaluation.report.differences import DIFFERENCE_LEGEND, MARKS, Difference, DifferenceTable, difference_tables
from doap.evaluation.report.formats import arrow, distinct_note
from doap.evaluation.report.table import (
    REFERENCES,
    BenchmarkTable,
    Entry,
    format_bounds,
    format_number,
    format_units,
    summarise,
)
from doap.evaluation.result import Figure

MAX_PARTS = 24
"""Maximum number of parts of a figure with a chart; the CSV table has all of them."""
TOP = ("first", "second", "third")
"""Styles of the curves of the best three descriptors."""
KINDS = (
    "<span class=real>●</span> real-valued, <span class=binary>■</span> binary, <span class=pipeline>◆</span> pipeline"
)
MARK = {"real": "●", "binary": "■", "pipeline": "◆"}


def write_report_page(tables: Sequence[BenchmarkTable], out: Path) -> Path:
    """Write the page atomically."""
    names = {entry.label for table in tables for entry in table.entries}
    benchmarks = {table.any_result.benchmark for table in tables}
    title = f"{counted(len(names), 'descriptor')} on {counted(len(benchmarks), 'benchmark')}"
    items = [f"<li><a href='#{each.key}'>{escape(each.name)}</a>: {escape(summarise(each))}" for each in tables]
    parts = [f"<h1>{title}</h1><ul>{''.join(items)}</ul>", cost_section(tables), *map(_section, tables)]
    return write_html(out, title, parts)


def _section(table: BenchmarkTable) -> str:
    headline, *further = table.figures
    data = "" if "dataset" in table.distinct else f"on {table.any_result.dataset.name}"
    parts = [
        f"<h2 id='{table.key}'>{escape(table.name)} <small>{escape(data)}</small></h2>",
        f"<p class=soft>{escape(distinct_note(table))}</p>" if table.distinct else "",
        _figure_table(table),
        *map(_difference_table, difference_tables(table)),
        f"<h3>{escape(headline.name)} by part</h3>{_part_charts(table, headline)}",
        *(_folded(f"{figure.name} by part", _part_charts(table, figure)) for figure in further if figure.parts),
        f"<h3>Size and curves</h3><div class=charts>{_size_chart(table)}{''.join(_curve_charts(table))}</div>",
        _histograms(table),
        _folded("Protocol, checksums, versions, seed and times", _provenance(table)),
    ]
    return f"<section>{''.join(parts)}</section>"


def _figure_table(table: BenchmarkTable) -> str:
    heads = "".join(f"<th>{escape(figure.name)} {arrow(figure)}" for figure in table.figures)
    rows = []
    for entry in table.entries:
        descriptor = entry.result.descriptor
        size = f"{descriptor.dim} {'bits' if descriptor.kind == 'binary' else 'floats'}"
        mark = f"<span class={entry.style}>{MARK[entry.style]}</span>"
        cells = "".join(_cell(table, entry, figure) for figure in table.figures)
        rows.append(f"<tr><th>{mark} {escape(entry.label)}<td>{descriptor.bytes:,}<small>{size}</small>{cells}")
    legend = (
        f"Values with 95 % confidence intervals from resampling {escape(table.figures[0].unit)}. The best is bold; ≈ "
        "marks values that do not differ significantly from it (the 95 % interval of the paired difference contains "
        "0). Two intervals may overlap although one descriptor is better on nearly every sample. Fewer than three "
        f"{escape(table.figures[0].unit)} have no interval."
    )
    html = f"<table><thead><tr><th>descriptor<th>bytes{heads}</thead><tbody>{''.join(rows)}</tbody></table>"
    # With more than four figures, the table only fits if the intervals are below the values.
    style = "wide many" if len(table.figures) > 4 else "wide"
    return f"<div class='{style}'>{html}</div><p class=soft>{legend}</p>"


def _cell(table: BenchmarkTable, entry: Entry, figure: Figure) -> str:
    estimate = entry.estimate(figure.name)
    if estimate is None:
        return "<td>–"
    standing = table.standing(entry, figure)
    value = f"<b>{format_number(estimate.value)}</b>" if standing == "best" else format_number(estimate.value)
    bounds = _two_lines(format_bounds(estimate, figure.unit))
    return f"<td>{value}<small>{bounds}{' ≈' if standing == 'tied' else ''}</small>"


def _difference_table(compared: DifferenceTable) -> str:
    """Show the differences from a reference; significant losses are marked like significant wins."""
    names = list(compared.rows[0][1])
    rows = []
    for entry, differences in compared.rows:
        cells = "".join(_difference_cell(differences[name]) for name in names)
        rows.append(f"<tr><th>{escape(entry.label)}{cells}")
    heads = "".join(f"<th>{escape(name)}" for name in names)
    html = f"<table><thead><tr><th>descriptor{heads}</thead><tbody>{''.join(rows)}</tbody></table>"
    style = "wide many" if len(names) > 3 else "wide"
    legend = f"<p class=soft>{escape(DIFFERENCE_LEGEND)}</p>"
    return _folded(compared.title, f"{legend}<div class='{style}'>{html}</div>", opened=True)


def _difference_cell(difference: Difference | None) -> str:
    if difference is None:
        return "<td>–"
    value, _, interval = str(difference).removesuffix(MARKS[difference.outcome]).rstrip().partition(" ")
    return f"<td class={difference.outcome}>{value} {MARKS[difference.outcome]}<small>{_two_lines(interval)}</small>"


def _two_lines(bounds: str) -> str:
    """Break the text of a missing interval, which is wider than an interval."""
    return escape(bounds).replace("no interval (", "no interval<br>(")


def _part_charts(table: BenchmarkTable, figure: Figure) -> str:
    """Draw a chart of the total and one of each part, with a common axis and order of rows."""
    every = (entry.result.figure(figure.name) for entry in table.entries)
    names = list(dict.fromkeys(name for each in every if each for name in each.parts))
    ranked = {part: table.ranked(figure, part) for part in ["", *names[:MAX_PARTS]]}
    ends = [end for rows in ranked.values() for _, value in rows for end in (value.value, *value.bounds)]
    axis, reference = Axis().spanning(ends), table.reference
    charts = []
    for part, rows in ranked.items():
        found = {entry.label: value for entry, value in rows}
        best = rows[0][0].label if rows else ""
        whiskers = [
            Whisker(entry.label, entry.style, value.value, *value.bounds, strong=entry.label == best)
            for entry in table.entries
            if (value := found.get(entry.label))
        ]
        unit = (figure.part_unit if part else "") or figure.unit
        units = format_units(rows[0][1].units, unit) if rows else ""
        at = found.get(reference.label) if reference else None
        charts.append(dot_chart(part or "All", units, whiskers, axis, at.value if at else None))
    more = len(names) - MAX_PARTS
    legend = f"{KINDS}. {f'Dashed line: {escape(reference.label)}. ' if reference else ''}Bold: best of the chart."
    legend += f" {more} more parts are in tables.csv." if more > 0 else ""
    return f"<p class=soft>{legend}</p><div class=dots>{''.join(charts)}</div>"


def _size_chart(table: BenchmarkTable) -> str:
    """Plot the headline figure against the size of a descriptor."""
    figure = table.figures[0]
    dots = []
    for entry, value in table.ranked(figure):
        size = entry.result.descriptor.bytes
        title = f"{entry.label}: {size} bytes, {format_number(value.value)}"
        dots.append(Dot(entry.label, entry.style, size, value.value, title))
    note = "dashed: best at this size or smaller"
    axes = Axis("bytes per descriptor", base=2), Axis(f"{figure.name} {arrow(figure)}")
    return scatter_chart("Accuracy and size", note, dots, *axes, frontier=figure.better)


def _curve_charts(table: BenchmarkTable) -> Iterable[str]:
    """Draw a chart of each curve; the best three and the references have labels, the others are faint."""
    styles = {entry.label: "baseline" for entry in table.entries if entry.result.descriptor.name.lower() in REFERENCES}
    styles |= {entry.label: style for entry, style in zip(table.entries, TOP, strict=False)}
    curves = {curve.name: curve for entry in table.entries for curve in entry.result.curves}
    for name, example in curves.items():
        lines = []
        # The best is drawn last, on top of the others.
        for entry in reversed(table.entries):
            style = styles.get(entry.label)
            for curve in entry.result.curves:
                if curve.name == name:
                    label = entry.label if style else ""
                    lines.append(Line(label, style or "other", curve.points, title=entry.label))
        lines.sort(key=lambda line: line.style != "other")
        yield line_chart(name, "", lines, Axis(example.x, base=example.x_base), Axis(example.y))


def _histograms(table: BenchmarkTable) -> str:
    charts = [
        histogram_chart(entry.label, "", found.edges, [("others", found.others), ("matches", found.matches)])
        for entry in table.entries
        if (found := entry.result.histogram)
    ]
    if not charts:
        return ""
    legend = (
        "Distances of <span class=real>matching</span> and <span class=binary>non-matching</span> pairs; the less the "
        "histograms overlap, the better."
    )
    return f"<h3>Distances</h3><p class=soft>{legend}</p><div class=small>{''.join(charts)}</div>"


def _provenance(table: BenchmarkTable) -> str:
    """Show what all results have in common, then what is specific to each."""
    result = table.any_result
    common = {
        "dataset": {"name": result.dataset.name, "sha256": result.dataset.sha256},
        "protocol": result.protocol,
        "seed": {"seed": result.seed},
        "versions": _versions(table.entries),
    }
    timers = list(dict.fromkeys(name for entry in table.entries for name in entry.result.seconds))
    heads = ["date", *(f"{name}, s" for name in timers), "fingerprint", "file"]
    rows = []
    for entry in table.entries:
        each, descriptor = entry.result, entry.result.descriptor
        times = [f"{each.seconds[name]:.1f}" if name in each.seconds else "–" for name in timers]
        cells = (each.date, *times, descriptor.fingerprint[:16], (descriptor.file_sha256 or "–")[:16])
        rows.append(f"<tr><th>{escape(entry.label)}{''.join(f'<td>{escape(cell)}' for cell in cells)}")
    head = "".join(f"<th>{escape(name)}" for name in heads)
    html = f"<table><thead><tr><th>descriptor{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div class=tables>{setting_tables(common)}</div><div class=wide>{html}</div>"


def _versions(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the version of each library; where results differ, each version with its descriptors."""
    versions = {}
    for name in dict.fromkeys(name for entry in entries for name in entry.result.versions):
        users: dict[str, list[str]] = {}
        for entry in entries:
            users.setdefault(entry.result.versions.get(name, "none"), []).append(entry.label)
        several = (f"{version} ({', '.join(labels)})" for version, labels in users.items())
        versions[name] = "; ".join(several) if len(users) > 1 else next(iter(users))
    return versions


def _folded(summary: str, content: str, *, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{content}</details>"
