"""Reports: results as an HTML page and as Markdown and LaTeX tables, without evaluating anything again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from doap._support.files import atomic_write, make_folder
from doap.evaluation.report.formats import latex_tables, markdown_tables
from doap.evaluation.report.page import write_report_page
from doap.evaluation.report.table import group_results, read_files, summarise


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report.

    Attributes:
        page: HTML page.
        markdown, latex: Tables.
        summaries: One or two sentences for each table, by its name.
    """

    page: Path
    markdown: Path
    latex: Path
    summaries: dict[str, str]


def write_report(results: str | Path | Sequence[str | Path], out: str | Path) -> ReportFiles:
    """Write the report of results into a folder, each file atomically.

    Args:
        results: JSON files of `doap eval`, or folders of them at any depth. Galleries are read from beside them.
        out: Folder of the report.
    """
    paths = [results] if isinstance(results, str | Path) else results
    tables = group_results(read_files(paths))
    out = make_folder(Path(out))
    return ReportFiles(
        page=write_report_page(tables, out / "index.html"),
        markdown=_write(markdown_tables(tables), out / "tables.md"),
        latex=_write(latex_tables(tables), out / "tables.tex"),
        summaries={table.name: summarise(table) for table in tables},
    )


def _write(text: str, path: Path) -> Path:
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
    return path
