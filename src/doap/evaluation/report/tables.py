"""Comparisons as Markdown, CSV and LaTeX: nothing in them is computed, only written."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence

from doap.evaluation.report.comparison import BenchmarkTable, Entry, number
from doap.evaluation.result import Estimate, Figure

LEGEND = (
    "95 % intervals; best in bold; ≈ marks what is not told apart from it: the interval of the difference, on the same "
    "resamples, holds 0."
)
COLUMNS = ("benchmark", "descriptor", "figure", "part", "value", "low", "high", "units")
# What LaTeX would take for a command.
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≈": r"$\approx$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def markdown(comparisons: Sequence[BenchmarkTable]) -> str:
    """A heading and a table for each comparison, descriptors in rows, best first."""
    blocks = [LEGEND]
    for comparison in comparisons:
        figures = comparison.figures
        heads = ["descriptor", "bytes", *(f"{figure.name} {arrow(figure)}" for figure in figures)]
        lines = [f"| {' | '.join(map(_markdown, heads))} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
        for entry in comparison.entries:
            cells = [_markdown_cell(comparison, entry, figure) for figure in figures]
            first = [_markdown(entry.label), str(entry.result.descriptor.bytes)]
            lines.append(f"| {' | '.join([*first, *cells])} |")
        note = [apart_note(comparison)] if comparison.apart else []
        blocks += [f"## {_markdown(comparison.name)}", *map(_markdown, note), "\n".join(lines)]
    return "\n\n".join(blocks) + "\n"


def long_csv(comparisons: Sequence[BenchmarkTable]) -> str:
    """One line for each figure of each descriptor, in all (an empty part) and by part, with all digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for comparison in comparisons:
        for entry in comparison.entries:
            for figure in entry.result.figures:
                for part, estimate in {"": figure.total, **figure.parts}.items():
                    numbers = (estimate.value, estimate.low, estimate.high, estimate.units)
                    writer.writerow((comparison.name, entry.label, figure.name, part, *numbers))
    return text.getvalue()


def latex(comparisons: Sequence[BenchmarkTable]) -> str:
    """A `table` for each comparison, with booktabs."""
    blocks = [r"% \usepackage{booktabs}"]
    for comparison in comparisons:
        figures = comparison.figures
        arrows = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
        heads = ["descriptor", "bytes", *(f"{_latex(figure.name)} {arrows[figure.better]}" for figure in figures)]
        rows = []
        for entry in comparison.entries:
            cells = [_latex_cell(comparison, entry, figure) for figure in figures]
            rows.append(" & ".join([_latex(entry.label), str(entry.result.descriptor.bytes), *cells]) + r" \\")
        block = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(f'{comparison.name}. {LEGEND}')}}}",
            rf"\label{{tab:{comparison.key}}}",
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


def apart_note(comparison: BenchmarkTable) -> str:
    """What the tables of one benchmark differ in."""
    said = ", ".join(f"{name} {value}" for name, value in comparison.apart.items())
    return f"Not to be compared with the other tables of {comparison.any_result.benchmark}; this one has {said}."


def arrow(figure: Figure) -> str:
    return "↑" if figure.better == "higher" else "↓"


def bounds(estimate: Estimate) -> str:
    """The interval alone; empty where it is not known."""
    known = math.isfinite(estimate.low) and math.isfinite(estimate.high)
    return f"[{number(estimate.low)}, {number(estimate.high)}]" if known else ""


def _markdown_cell(comparison: BenchmarkTable, entry: Entry, figure: Figure) -> str:
    estimate = entry.bootstrap_interval(figure.name)
    if estimate is None:
        return "–"
    standing = comparison.standing(entry, figure)
    value = f"**{number(estimate.value)}**" if standing == "best" else number(estimate.value)
    return " ".join(filter(None, (value, bounds(estimate), "≈" if standing == "level" else "")))


def _latex_cell(comparison: BenchmarkTable, entry: Entry, figure: Figure) -> str:
    estimate = entry.bootstrap_interval(figure.name)
    if estimate is None:
        return "--"
    standing = comparison.standing(entry, figure)
    value = rf"\textbf{{{number(estimate.value)}}}" if standing == "best" else number(estimate.value)
    level = r"$\approx$" if standing == "level" else ""
    # In braces: a bracket after the end of a row would be taken for its option.
    return f"{value} {{\\scriptsize {bounds(estimate)}}} {level}".strip()


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)


def _latex(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in text)
