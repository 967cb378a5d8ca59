"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from doap.evaluation.report.differences import COMPARED_WITH, DIFFERENCE_LEGEND, Difference, difference_tables
from doap.evaluation.report.table import BenchmarkTable, Entry, format_bounds, format_number
from doap.evaluation.result import Figure

LEGEND = (
    "Values with 95 % confidence intervals. The best is bold; ≈ marks values that do not differ significantly from it "
    "(the 95 % interval of the paired difference contains 0). Fewer than three independent units have no interval."
)
COLUMNS = ("benchmark", "descriptor", "figure", "part", "value", "low", "high", "units", "unit")
# Characters with a special meaning in LaTeX.
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≈": r"$\approx$",
    "−": "$-$",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def markdown_tables(tables: Sequence[BenchmarkTable]) -> str:
    """Return a heading and a Markdown table for each table, best descriptor first, with its tables of differences."""
    blocks = [LEGEND, DIFFERENCE_LEGEND]
    for table in tables:
        heads = ["bytes", *(f"{figure.name} {arrow(figure)}" for figure in table.figures)]
        rows = []
        for entry in table.entries:
            cells = [_markdown_cell(table, entry, figure) for figure in table.figures]
            rows.append((entry.label, [str(entry.result.descriptor.bytes), *cells]))
        note = [distinct_note(table)] if table.distinct else []
        blocks += [f"## {_markdown(table.name)}", *map(_markdown, note), _markdown_table(heads, rows)]
        for compared in difference_tables(table):
            rows = [(entry.label, _difference_cells(row, "–")) for entry, row in compared.rows]
            blocks += [f"### {_markdown(compared.title)}", _markdown_table(heads[1:], rows)]
    return "\n\n".join(blocks) + "\n"


def csv_table(tables: Sequence[BenchmarkTable]) -> str:
    """Return one line for each figure of each descriptor, in total (empty part) and by part, with all digits.

    The limits of a missing interval are empty. The last columns are the paired differences of the totals from each
    reference.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ends = ("", " low", " high")
    writer.writerow((*COLUMNS, *(f"minus {name}{end}" for name in COMPARED_WITH for end in ends)))
    for table in tables:
        compared = {
            one.reference.result.descriptor.name.lower(): {entry.label: row for entry, row in one.rows}
            for one in difference_tables(table)
        }
        for entry in table.entries:
            for figure in entry.result.figures:
                apart = [compared.get(name, {}).get(entry.label, {}).get(figure.name) for name in COMPARED_WITH]
                last = [number for one in apart for number in _numbers(one)]
                for part, estimate in {"": figure.total, **figure.parts}.items():
                    unit = (figure.part_unit if part else "") or figure.unit
                    numbers = (estimate.value, estimate.low, estimate.high, estimate.units, unit)
                    writer.writerow((table.name, entry.label, figure.name, part, *numbers, *([] if part else last)))
    return text.getvalue()


def latex_tables(tables: Sequence[BenchmarkTable]) -> str:
    """Return a LaTeX `table` with booktabs for each table, and for its tables of differences."""
    blocks = [r"% \usepackage{amssymb, booktabs}"]
    arrows = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
    for table in tables:
        heads = ["bytes", *(f"{_latex(figure.name)} {arrows[figure.better]}" for figure in table.figures)]
        rows = []
        for entry in table.entries:
            cells = [_latex_cell(table, entry, figure) for figure in table.figures]
            rows.append((entry.label, [str(entry.result.descriptor.bytes), *cells]))
        blocks.append(_latex_table(f"{table.name}. {LEGEND}", table.key, "r", heads, rows))
        for compared in difference_tables(table):
            rows = [
                (entry.label, [_latex(cell) for cell in _difference_cells(row, "--")]) for entry, row in compared.rows
            ]
            caption = f"{table.name}. {compared.title}. {DIFFERENCE_LEGEND}"
            key = f"{table.key}-minus-{compared.reference.result.descriptor.name.lower()}"
            blocks.append(_latex_table(caption, key, "", heads[1:], rows))
    return "\n\n".join(blocks) + "\n"


def _markdown_table(heads: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> str:
    lines = [f"| {' | '.join(map(_markdown, ['descriptor', *heads]))} |", "|---" + "|---:" * len(heads) + "|"]
    lines += [f"| {' | '.join([_markdown(label), *cells])} |" for label, cells in rows]
    return "\n".join(lines)


def _latex_table(
    caption: str, key: str, numbers: str, heads: Sequence[str], rows: Sequence[tuple[str, list[str]]]
) -> str:
    """Return one table; `numbers` are the columns after the label that are aligned to the right."""
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(caption)}}}",
        rf"\label{{tab:{key}}}",
        rf"\begin{{tabular}}{{l{numbers}{'l' * (len(heads) - len(numbers))}}}",
        r"\toprule",
        " & ".join(["descriptor", *heads]) + r" \\",
        r"\midrule",
        *(" & ".join([_latex(label), *cells]) + r" \\" for label, cells in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _difference_cells(row: Mapping[str, Difference | None], missing: str) -> list[str]:
    return [missing if difference is None else str(difference) for difference in row.values()]


def _numbers(difference: Difference | None) -> tuple[float | None, float | None, float | None]:
    if difference is None:
        return None, None, None
    return (difference.value, *(difference.interval or (None, None)))


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
    return " ".join(filter(None, (value, format_bounds(estimate, figure.unit), "≈" if standing == "tied" else "")))


def _latex_cell(table: BenchmarkTable, entry: Entry, figure: Figure) -> str:
    estimate = entry.estimate(figure.name)
    if estimate is None:
        return "--"
    standing = table.standing(entry, figure)
    value = rf"\textbf{{{format_number(estimate.value)}}}" if standing == "best" else format_number(estimate.value)
    tied = r"$\approx$" if standing == "tied" else ""
    # The braces keep LaTeX from reading a bracket after the end of a row as an option.
    return f"{value} {{\\scriptsize {_latex(format_bounds(estimate, figure.unit))}}} {tied}".strip()


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
