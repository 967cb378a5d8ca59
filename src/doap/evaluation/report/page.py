"""The HTML page of a report: the best descriptor first, then figures by part, curves and provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from doap._support.charts import Axis, Line, Whisker, dot_chart, line_chart
from doap._support.html import setting_tables, write_html
from doap._support.text import counted
from doap.evaluation.report.formats import DIFFERENCE_LEGEND, LEGEND, MARKS, Grid, difference_grid, figure_grid
from doap.evaluation.report.table import BenchmarkTable, summarise
from doap.evaluation.result import Figure

MAX_PARTS = 24
"""Maximum number of parts of a figure with a chart; the JSON files have all of them."""
TOP = ("first", "second", "third")
"""Styles of the curves of the best three descriptors."""
MARK = {"real": "●", "binary": "■", "pipeline": "◆"}
LEGENDS = (
    f"<p class=soft>{LEGEND} {DIFFERENCE_LEGEND} <span class=real>●</span> real-valued, <span class=binary>■</span> "
    "binary, <span class=pipeline>◆</span> pipeline.</p>"
)


def write_report_page(tables: Sequence[BenchmarkTable], out: Path) -> Path:
    """Write the page atomically."""
    names = {entry.label for table in tables for entry in table.entries}
    benchmarks = {table.any_result.benchmark for table in tables}
    title = f"{counted(len(names), 'descriptor')} on {counted(len(benchmarks), 'benchmark')}"
    items = [f"<li><a href='#{each.key}'>{escape(each.name)}</a>: {escape(summarise(each))}" for each in tables]
    return write_html(out, title, [f"<h1>{title}</h1><ul>{''.join(items)}</ul>{LEGENDS}", *map(_section, tables)])


def _section(table: BenchmarkTable) -> str:
    headline, *further = table.figures
    curves = [*_curve_charts(table), *_histograms(table)]
    parts = [
        f"<h2 id='{table.key}'>{escape(table.name)} <small>on {escape(table.any_result.dataset.name)}</small></h2>",
        figure_section(table),
        f"<h3>{escape(headline.name)} by part</h3>{part_charts(table, headline)}",
        *(folded(f"{figure.name} by part", part_charts(table, figure)) for figure in further if figure.parts),
        f"<h3>Curves</h3><div class=charts>{''.join(curves)}</div>" if curves else "",
        provenance([table]),
    ]
    return f"<section>{''.join(parts)}</section>"


def figure_section(table: BenchmarkTable) -> str:
    """Show the figures of a table, and their differences from the reference."""
    figures, differences = _grid(figure_grid(table)), difference_grid(table)
    return figures + (folded(differences.title, _grid(differences), opened=True) if differences else "")


def _grid(grid: Grid) -> str:
    heads = "".join(f"<th>{escape(name)}" for name in ["descriptor", *grid.heads])
    rows = []
    for entry, cells in grid.rows:
        texts = []
        for cell in cells:
            value = f"<b>{cell.value}</b>" if cell.style == "best" else f"{cell.value} {MARKS.get(cell.style, '')}"
            style = f" class={cell.style}" if cell.style else ""
            texts.append(f"<td{style}>{value}{f'<small>{cell.interval}</small>' if cell.interval else ''}")
        mark = f"<span class={entry.style}>{MARK[entry.style]}</span>"
        rows.append(f"<tr><th>{mark} {escape(entry.label)}{''.join(texts)}")
    # With more columns, the table only fits if the intervals are below the values.
    style = "wide many" if len(grid.heads) > 4 else "wide"
    html = f"<table><thead><tr>{heads}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div class='{style}'>{html}</div>"


def part_charts(table: BenchmarkTable, figure: Figure) -> str:
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
        at = found.get(reference.label) if reference else None
        note = f"{(figure.part_unit if part else '') or figure.unit}: {rows[0][1].units:,}" if rows else ""
        charts.append(dot_chart(part or figure.name, note, whiskers, axis, at.value if at else None))
    more = len(names) - MAX_PARTS
    legend = f"{f'Dashed line: {escape(reference.label)}. ' if reference else ''}Bold: best of the chart."
    legend += f" {more} more parts are in the JSON files." if more > 0 else ""
    return f"<p class=soft>{legend}</p><div class=dots>{''.join(charts)}</div>"


def _curve_charts(table: BenchmarkTable) -> Iterable[str]:
    """Draw a chart of each curve; the best three and the reference have labels, the others are faint."""
    styles = {table.reference.label: "baseline"} if table.reference else {}
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
        yield line_chart(name, "", lines, Axis(example.x, log=example.x_base is not None), Axis(example.y))


def _histograms(table: BenchmarkTable) -> Iterable[str]:
    """Draw the distances of matching and of non-matching pairs, for the best three descriptors and the reference."""
    for entry in table.entries:
        found = entry.result.histogram
        if found and (entry in table.entries[: len(TOP)] or entry is table.reference):
            shares = (("not matching", "binary", found.others), ("matching", "real", found.matches))
            lines = [Line(name, style, list(zip(found.edges, share, strict=False))) for name, style, share in shares]
            yield line_chart(f"{entry.label}: distances", "less overlap is better", lines, Axis("distance"), Axis())


def provenance(tables: Sequence[BenchmarkTable]) -> str:
    """Show what all results have in common, then what is specific to each."""
    sections: dict[str, Any] = {}
    for table in tables:
        result = table.any_result
        common = {"dataset": result.dataset.name, "sha256": result.dataset.sha256, "seed": result.seed}
        sections |= {table.name: {**common, **result.protocol}}
        for entry in table.entries:
            one = entry.result
            described = {"date": one.date, **{f"{name}, s": round(value, 3) for name, value in one.seconds.items()}}
            described |= {
                **one.selected,
                "fingerprint": one.descriptor.fingerprint,
                "file": one.descriptor.file_sha256 or "–",
            }
            sections[entry.label] = {**described, **one.versions}
    return folded(
        "Protocol, checksums, versions, seed and times", f"<div class=tables>{setting_tables(sections)}</div>"
    )


def folded(summary: str, content: str, *, opened: bool = False) -> str:
    """Return content under a summary that shows or hides it."""
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{content}</details>"
