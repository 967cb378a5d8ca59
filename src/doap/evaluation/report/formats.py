"""Grids of text: the figures of a table and their differences from the reference, as Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from doap.evaluation.report.table import BenchmarkTable, Entry, compare, format_number
from doap.evaluation.result import Figure

LEGEND = (
    "Values with 95 % confidence intervals. Bold: the best, and all that do not differ significantly from it (the 95 % "
    "interval of the paired difference contains 0). Values of fewer than three independent units have no interval."
)
DIFFERENCE_LEGEND = (
    "Differences with 95 % intervals of paired resamples. ▲ is significantly better and ▼ significantly worse; without "
    "a mark, the interval contains 0 or there is none."
)
MARKS = {"better": "▲", "worse": "▼"}
# Characters with a special meaning in LaTeX.
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


@dataclass(frozen=True)
class Cell:
    """A number with its interval in brackets; `best` is bold, `better` and `worse` have a mark."""

    value: str
    interval: str = ""
    style: Literal["", "best", "better", "worse"] = ""


@dataclass(frozen=True)
class Grid:
    """A table of text: a title, a legend, the names of the columns, and the cells of each entry."""

    title: str
    legend: str
    heads: list[str]
    rows: list[tuple[Entry, list[Cell]]]


def figure_grid(table: BenchmarkTable) -> Grid:
    """Return the bytes and the figures of each descriptor, best first."""
    heads = ["bytes", *(f"{figure.name} {'↑' if figure.better == 'higher' else '↓'}" for figure in table.figures)]
    rows = []
    for entry in table.entries:
        size = Cell(f"{entry.result.descriptor.bytes:,}")
        rows.append((entry, [size, *(_cell(table, entry, figure) for figure in table.figures)]))
    return Grid(table.name, LEGEND, heads, rows)


def difference_grid(table: BenchmarkTable) -> Grid | None:
    """Return the difference of each descriptor from the reference; None without a reference or others."""
    others = [entry for entry in table.entries if entry is not table.reference]
    if table.reference is None or not others:
        return None
    name, rows = table.reference.label, []
    for entry in others:
        pair = (table.reference, entry) if table.candidate else (entry, table.reference)
        rows.append((entry, [_difference_cell(*pair, figure) for figure in table.figures]))
    title = f"{name} minus …" if table.candidate else f"Difference from {name}"
    return Grid(title, DIFFERENCE_LEGEND, figure_grid(table).heads[1:], rows)


def markdown_tables(tables: Sequence[BenchmarkTable]) -> str:
    """Return a heading and a Markdown table for each table, best descriptor first, with its differences."""
    blocks = [LEGEND, DIFFERENCE_LEGEND]
    for table in tables:
        blocks += [f"## {_markdown(table.name)}", _markdown_table(figure_grid(table))]
        if differences := difference_grid(table):
            blocks += [f"### {_markdown(differences.title)}", _markdown_table(differences)]
    return "\n\n".join(blocks) + "\n"


def latex_tables(tables: Sequence[BenchmarkTable]) -> str:
    """Return a LaTeX `table` with booktabs for each table, and for its differences."""
    blocks = [r"% \usepackage{amssymb, booktabs}"]
    for table in tables:
        blocks.append(_latex_table(figure_grid(table), table.name, table.key))
        if differences := difference_grid(table):
            blocks.append(_latex_table(differences, f"{table.name}. {differences.title}", f"{table.key}-differences"))
    return "\n\n".join(blocks) + "\n"


def _cell(table: BenchmarkTable, entry: Entry, figure: Figure) -> Cell:
    estimate = entry.estimate(figure.name)
    if estimate is None:
        return Cell("–")
    low, high = estimate.bounds
    interval = f"[{format_number(low)}, {format_number(high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    return Cell(format_number(estimate.value), interval, "best" if table.leads(entry, figure) else "")


def _difference_cell(entry: Entry, minus: Entry, figure: Figure) -> Cell:
    one, other = entry.estimate(figure.name), minus.estimate(figure.name)
    if one is None or other is None:
        return Cell("–")
    found = compare(one, other, figure.better)
    interval = f"[{', '.join(map(_signed, found.interval))}]" if found.interval else ""
    return Cell(_signed(found.value), interval, found.outcome if found.outcome in ("better", "worse") else "")


def _signed(value: float) -> str:
    # Both signs of a rounded 0 would be misleading.
    text = format_number(abs(value))
    return text if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"


def _markdown_table(grid: Grid) -> str:
    lines = [f"| {' | '.join(map(_markdown, ['descriptor', *grid.heads]))} |", "|---" + "|---:" * len(grid.heads) + "|"]
    for entry, cells in grid.rows:
        texts = []
        for cell in cells:
            value = f"**{cell.value}**" if cell.style == "best" else cell.value
            texts.append(" ".join(filter(None, (value, cell.interval, MARKS.get(cell.style)))))
        lines.append(f"| {' | '.join([_markdown(entry.label), *texts])} |")
    return "\n".join(lines)


def _latex_table(grid: Grid, title: str, key: str) -> str:
    rows = []
    for entry, cells in grid.rows:
        texts = []
        for cell in cells:
            value = rf"\textbf{{{_latex(cell.value)}}}" if cell.style == "best" else _latex(cell.value)
            # The braces keep LaTeX from reading a bracket after the end of a row as an option.
            interval = rf" {{\scriptsize {_latex(cell.interval)}}}" if cell.interval else ""
            texts.append(f"{value}{interval} {_latex(MARKS.get(cell.style, ''))}".strip())
        rows.append(" & ".join([_latex(entry.label), *texts]) + r" \\")
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(f'{title}. {grid.legend}')}}}",
        rf"\label{{tab:{key}}}",
        rf"\begin{{tabular}}{{l{'r' * len(grid.heads)}}}",
        r"\toprule",
        " & ".join(["descriptor", *map(_latex, grid.heads)]) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
