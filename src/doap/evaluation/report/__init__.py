"""Reports: results as an HTML page and as Markdown and LaTeX tables, without evaluating anything again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from doap._support.files import atomic_write, make_folder
from doap.evaluation.report.formats import latex_tables, markdown_tables
from doap.evaluation.report.page import write_report_page
from doap.evaluation.report.table import group_results, read_files, summarise


def write_report(results: str | Path | Sequence[str | Path], out: str | Path) -> dict[str, str]:
    """Write the report of results into a folder: `index.html`, `tables.md` and `tables.tex`, each atomically.

    Args:
        results: JSON files of `doap eval`, or folders of them at any depth.
        out: Folder of the report.

    Returns:
        One sentence for each table, by its name.
    """
    paths = [results] if isinstance(results, str | Path) else results
    tables = group_results(read_files(paths))
    out = make_folder(Path(out))
    write_report_page(tables, out / "index.html")
    for name, text in (("tables.md", markdown_tables(tables)), ("tables.tex", latex_tables(tables))):
        with atomic_write(out / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8", newline="\n")
    return {table.name: summarise(table) for table in tables}
