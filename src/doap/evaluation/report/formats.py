"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from doap.evaluation.report.table import BenchmarkTable, Entry, format_bounds, format_number
from doap.evaluation.result import Figure

LEGEND = (
    "Values with 95 % confidence intervals. The best is bold; ≈ marks values that do not differ significantly from it "
    "(the 95 % interval of the paired difference contains 0)."
)
COLUMNS = ("benchmark", "descriptor", "figure", "part", "value", "low", "high", "units")
# Characters with a special meaning in LaTeX.
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≈": r"$\approx$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def markdown_tables(tables: Sequence[BenchmarkTable]) -> str:
    """Return a heading and a Markdown table for each table, best descriptor first."""
    blocks = [LEGEND]
    for table in tables:
        figures = table.figures
        heads = ["descriptor", "bytes", *(f"{figure.name} {arrow(figure)}" for figure in figures)]
        lines = [f"| {' | '.join(map(_markdown, heads))} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
        for entry in table.entries:
            cells = [_markdown_cell(table, entry, figure) for figure in figures]
            first = [_markdown(entry.label), str(entry.result.descriptor.bytes)]
            lines.append(f"| {' | '.join([*first, *cells])} |")
        note = [distinct_note(table)] if table.distinct else []
        blocks += [f"## {_markdown(table.name)}", *map(_markdown, note), "\n".join(lines)]
    return "\n\n".join(blocks) + "\n"


def csv_table(tables: Sequence[BenchmarkTable]) -> str:
    """Return one line for each figure of each descriptor, in total (empty part) and by part, with all digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for table in tables:
        for entry in table.entries:
            for figure in entry.result.figures:
                for part, estimate in {"": figure.total, **figure.parts}.items():
                    numbers = (estimate.value, estimate.low, estimate.high, estimate.units)
                    writer.writerow((table.name, entry.label, figure.name, part, *numbers))
    return text.getvalue()


def latex_tables(tables: Sequence[BenchmarkTable]) -> str:
    """Return a LaTeX `table` with booktabs for each table."""
    blocks = [r"% \usepackage{booktabs}"]
    for table in tables:
        figures = table.figures
        arrows = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
        heads = ["descriptor", "bytes", *(f"{_latex(figure.name)} {arrows[figure.better]}" for figure in figures)]
        rows = []
        for entry in table.entries:
            cells = [_latex_cell(table, entry, figure) for figure in figures]
            rows.append(" & ".join([_latex(entry.label), str(entry.result.descriptor.bytes), *cells]) + r" \\")
        block = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(f'{table.name}. {LEGEND}')}}}",
            rf"\label{{tab:{table.key}}}",
            rf"\begin{{tabular}}{{lr{'l' * len(figures)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        blocks.append("\n".join(block))
    return "\n\n".join(blocks) + "\n"


def distinct_note(table: BenchmarkTable) -> str:
    """Return a note on the settings that distinguish this table from the others of its benchmark."""
    settings = ", ".join(f"{name} {value}" for name, value in table.distinct.items())
    return f"Not comparable with the other tables of {table.any_result.benchmark}. This table: {settings}."


def arrow(figure: Figure) -> str:
    """Return an arrow in the better direction of a figure."""
    return "↑" if figure.better == "higher" else "↓"


def _markdown_cell(table: BenchmarkTable, entry: Entry, figure: Figure) -> str:
    estimate = entry.estimate(figure.name)
    if estimate is None:
        return "–"
    standing = table.standing(entry, figure)
    value = f"**{format_number(estimate.value)}**" if standing == "best" else format_number(estimate.value)
    return " ".join(filter(None, (value, format_bounds(estimate), "≈" if standing == "tied" else "")))


def _latex_cell(table: BenchmarkTable, entry: Entry, figure: Figure) -> str:
    estimate = entry.estimate(figure.name)
    if estimate is None:
        return "--"
    standing = table.standing(entry, figure)
    value = rf"\textbf{{{format_number(estimate.value)}}}" if standing == "best" else format_number(estimate.value)
    tied = r"$\approx$" if standing == "tied" else ""
    # The braces keep LaTeX from reading a bracket after the end of a row as an option.
    return f"{value} {{\\scriptsize {format_bounds(estimate)}}} {tied}".strip()


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
