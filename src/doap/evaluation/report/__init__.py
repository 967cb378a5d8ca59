"""A report: what results say, as a page to look at and tables to put into a text; it never computes anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from doap.evaluation.report.comparison import compare, read_results, verdict
from doap.evaluation.report.page import write_page
from doap.evaluation.report.tables import latex, long_csv, markdown
from doap.files import atomic_write, make_folder


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report, and of each comparison its name and its verdict."""

    page: Path
    markdown: Path
    csv: Path
    latex: Path
    verdicts: dict[str, str]


def write_report(results: Sequence[str | Path], out: str | Path) -> ReportFiles:
    """Write the report of some results into a folder; each of its files whole or not at all.

    Args:
        results: JSON files of `doap eval`, or folders of them at any depth; galleries are read where they lie beside.
        out: the folder, made if it is not there.
    """
    comparisons = compare(read_results(results))
    out = make_folder(Path(out))
    return ReportFiles(
        page=write_page(comparisons, out / "index.html"),
        markdown=_write(markdown(comparisons), out / "tables.md"),
        csv=_write(long_csv(comparisons), out / "tables.csv"),
        latex=_write(latex(comparisons), out / "tables.tex"),
        verdicts={comparison.name: verdict(comparison) for comparison in comparisons},
    )


def _write(text: str, path: Path) -> Path:
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
    return path
