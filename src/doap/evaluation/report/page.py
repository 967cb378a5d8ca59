"""The report as one HTML file, in the order a reader asks: who is best, by how much, where, why, and can I trust it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from doap.evaluation.report.comparison import REFERENCES, BenchmarkTable, Entry, number, verdict
from doap.evaluation.report.tables import apart_note, arrow, bounds
from doap.evaluation.result import Figure, Gallery, read_gallery
from doap.html import (
    Axis,
    Dot,
    Line,
    Whisker,
    dot_chart,
    histogram_chart,
    line_chart,
    picture_cards,
    scatter_chart,
    setting_tables,
    write_html,
)

# Charts of parts for one figure; the tables have the rest.
PARTS_SHOWN = 24
PICTURES_SHOWN = 6
TOP = ("first", "second", "third")
KINDS = "<span class=real>●</span> numbers, <span class=binary>■</span> bits"


def write_page(comparisons: Sequence[BenchmarkTable], out: Path) -> Path:
    """Write the page of some comparisons, whole or not at all."""
    names = {entry.label for comparison in comparisons for entry in comparison.entries}
    benchmarks = {comparison.any_result.benchmark for comparison in comparisons}
    title = f"{_many(len(names), 'descriptor')} on {_many(len(benchmarks), 'benchmark')}"
    items = [f"<li><a href='#{each.key}'>{escape(each.name)}</a>: {escape(verdict(each))}" for each in comparisons]
    parts = [f"<h1>{title}</h1><ul>{''.join(items)}</ul>", *map(_section, comparisons)]
    return write_html(out, title, parts)


def _section(comparison: BenchmarkTable) -> str:
    headline, *further = comparison.figures
    data = "" if "dataset" in comparison.apart else f"on {comparison.any_result.dataset.name}"
    parts = [
        f"<h2 id='{comparison.key}'>{escape(comparison.name)} <small>{escape(data)}</small></h2>",
        f"<p class=soft>{escape(apart_note(comparison))}</p>" if comparison.apart else "",
        _table(comparison),
        f"<h3>{escape(headline.name)} by part</h3>{_dots(comparison, headline)}",
        *(_folded(f"{figure.name} by part", _dots(comparison, figure)) for figure in further if figure.parts),
        f"<h3>Size and curves</h3><div class=charts>{_sizes(comparison)}{''.join(_curves(comparison))}</div>",
        _histograms(comparison),
        _galleries(comparison),
        _folded("Protocol, checksums, versions, seed and times", _provenance(comparison)),
    ]
    return f"<section>{''.join(parts)}</section>"


def _table(comparison: BenchmarkTable) -> str:
    heads = "".join(f"<th>{escape(figure.name)} {arrow(figure)}" for figure in comparison.figures)
    rows = []
    for entry in comparison.entries:
        identity = entry.result.descriptor
        what = f"{identity.dim} {'bits' if identity.kind == 'binary' else 'numbers'}"
        mark = f"<span class={identity.kind}>{'■' if identity.kind == 'binary' else '●'}</span>"
        cells = "".join(_cell(comparison, entry, figure) for figure in comparison.figures)
        rows.append(f"<tr><th>{mark} {escape(entry.label)}<td>{identity.bytes:,}<small>{what}</small>{cells}")
    unit = comparison.figures[0].unit
    legend = f"With each figure its 95 % interval, by resampling {escape(unit)}. Best in bold; ≈ marks what is not "
    legend += "told apart from it: the interval of their difference, on the same resamples, holds 0. Intervals of two "
    legend += "may overlap although one is better on nearly all."
    table = f"<table><thead><tr><th>descriptor<th>bytes{heads}</thead><tbody>{''.join(rows)}</tbody></table>"
    # More than four figures fit a desktop only with the intervals below them.
    style = "wide many" if len(comparison.figures) > 4 else "wide"
    return f"<div class='{style}'>{table}</div><p class=soft>{legend}</p>"


def _cell(comparison: BenchmarkTable, entry: Entry, figure: Figure) -> str:
    estimate = entry.bootstrap_interval(figure.name)
    if estimate is None:
        return "<td>–"
    standing = comparison.standing(entry, figure)
    value = f"<b>{number(estimate.value)}</b>" if standing == "best" else number(estimate.value)
    return f"<td>{value}<small>{bounds(estimate)}{' ≈' if standing == 'level' else ''}</small>"


def _dots(comparison: BenchmarkTable, figure: Figure) -> str:
    """A chart of everything and one of each part, all with one axis and one order of rows."""
    every = (entry.result.figure(figure.name) for entry in comparison.entries)
    names = list(dict.fromkeys(name for each in every if each for name in each.parts))
    ranked = {part: comparison.ranked(figure, part) for part in ["", *names[:PARTS_SHOWN]]}
    ends = [end for rows in ranked.values() for _, value in rows for end in (value.low, value.value, value.high)]
    axis, reference = Axis().spanning(ends), comparison.reference
    charts = []
    for part, rows in ranked.items():
        found = {entry.label: value for entry, value in rows}
        best = rows[0][0].label if rows else ""
        whiskers = [
            Whisker(entry.label, _kind(entry), value.value, value.low, value.high, strong=entry.label == best)
            for entry in comparison.entries
            if (value := found.get(entry.label))
        ]
        units = f"{rows[0][1].units:,} {figure.unit}" if rows else ""
        at = found.get(reference.label) if reference else None
        charts.append(dot_chart(part or "All", units, whiskers, axis, at.value if at else None))
    left_out = len(names) - PARTS_SHOWN
    legend = f"{KINDS}{f'; dashed: {escape(reference.label)}' if reference else ''}; bold: the best of each."
    legend += f" {left_out} more parts are in tables.csv." if left_out > 0 else ""
    return f"<p class=soft>{legend}</p><div class=dots>{''.join(charts)}</div>"


def _sizes(comparison: BenchmarkTable) -> str:
    """Bytes against quality: what a search engine asks."""
    figure = comparison.figures[0]
    dots = [
        Dot(entry.label, _kind(entry), size, value.value, f"{entry.label}: {size} bytes, {number(value.value)}")
        for entry, value in comparison.ranked(figure)
        for size in (entry.result.descriptor.bytes,)
    ]
    note = "dashed: the best of its size or less"
    axes = Axis("bytes of a descriptor", base=2), Axis(f"{figure.name} {arrow(figure)}")
    return scatter_chart("What a byte buys", note, dots, *axes, frontier=figure.better)


def _curves(comparison: BenchmarkTable) -> Iterable[str]:
    """A chart of each curve: the best few and the references by name, the others faint."""
    styles = {entry.label: "peer" for entry in comparison.entries if entry.result.descriptor.name.lower() in REFERENCES}
    styles |= {entry.label: style for entry, style in zip(comparison.entries, TOP, strict=False)}
    curves = {curve.name: curve for entry in comparison.entries for curve in entry.result.curves}
    for name, example in curves.items():
        lines = [
            Line(entry.label if style else "", style or "other", curve.points, title=entry.label)
            # The best is drawn last, above all others.
            for entry in reversed(comparison.entries)
            for curve in entry.result.curves
            for style in (styles.get(entry.label),)
            if curve.name == name
        ]
        lines.sort(key=lambda line: line.style != "other")
        yield line_chart(name, "", lines, Axis(example.x, base=example.x_base), Axis(example.y))


def _histograms(comparison: BenchmarkTable) -> str:
    charts = [
        histogram_chart(entry.label, "", found.edges, [("others", found.others), ("matches", found.matches)])
        for entry in comparison.entries
        if (found := entry.result.histogram)
    ]
    if not charts:
        return ""
    legend = (
        "Shares of <span class=real>matching</span> and of <span class=binary>other</span> pairs by their distance: "
    )
    legend += "the less they overlap, the better."
    return f"<h3>Distances</h3><p class=soft>{legend}</p><div class=small>{''.join(charts)}</div>"


def _galleries(comparison: BenchmarkTable) -> str:
    found = [(entry.label, read_gallery(entry.path)) for entry in comparison.entries]
    shown = [(label, gallery) for label, gallery in found if gallery and (len(gallery.best) or len(gallery.worst))]
    if not shown:
        return ""
    folds = [_folded(label, _gallery(gallery), opened=label == shown[0][0]) for label, gallery in shown]
    legend = (
        "The surest right answers, a query and the match it found; and the surest wrong ones, a query, the match it "
    )
    legend += "should have found, and what it found instead. The numbers are distances to the query."
    return f"<h3>Best and worst matches</h3><p class=soft>{legend}</p>{''.join(folds)}"


def _gallery(gallery: Gallery) -> str:
    best = [("query", number(apart)) for apart in gallery.best_distances[:PICTURES_SHOWN]]
    worst = [
        ("query", f"match {number(match)}", f"<b>found {number(wrong)}</b>")
        for match, wrong in gallery.worst_distances[:PICTURES_SHOWN]
    ]
    pairs = picture_cards(gallery.best[:PICTURES_SHOWN], best, "pairs")
    return pairs + picture_cards(gallery.worst[:PICTURES_SHOWN], worst, "trios")


def _provenance(comparison: BenchmarkTable) -> str:
    """What all results have in common, then what each has of its own."""
    result = comparison.any_result
    common = {
        "dataset": {"name": result.dataset.name, "sha256": result.dataset.sha256},
        "protocol": result.protocol,
        "seed": {"seed": result.seed},
        "versions": _versions(comparison.entries),
    }
    clocks = list(dict.fromkeys(name for entry in comparison.entries for name in entry.result.seconds))
    heads = "".join(
        f"<th>{escape(name)}" for name in ("date", *(f"{name}, s" for name in clocks), "fingerprint", "file")
    )
    rows = []
    for entry in comparison.entries:
        each, identity = entry.result, entry.result.descriptor
        times = [f"{each.seconds[name]:.1f}" if name in each.seconds else "–" for name in clocks]
        cells = (each.date, *times, identity.fingerprint[:16], (identity.file_sha256 or "–")[:16])
        rows.append(f"<tr><th>{escape(entry.label)}{''.join(f'<td>{escape(cell)}' for cell in cells)}")
    table = f"<table><thead><tr><th>descriptor{heads}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div class=tables>{setting_tables(common)}</div><div class=wide>{table}</div>"


def _versions(entries: Sequence[Entry]) -> dict[str, str]:
    """Each library's version; where results differ, each of them with the descriptors that it was used for."""
    told = {}
    for name in dict.fromkeys(name for entry in entries for name in entry.result.versions):
        users: dict[str, list[str]] = {}
        for entry in entries:
            users.setdefault(entry.result.versions.get(name, "none"), []).append(entry.label)
        several = (f"{version} ({', '.join(labels)})" for version, labels in users.items())
        told[name] = "; ".join(several) if len(users) > 1 else next(iter(users))
    return told


def _folded(summary: str, inside: str, *, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{inside}</details>"


def _kind(entry: Entry) -> str:
    return entry.result.descriptor.kind


def _many(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
