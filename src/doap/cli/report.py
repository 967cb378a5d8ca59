"""`doap report RESULTS… --out REPORT`: a page to look at and tables to put into a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    results: Annotated[list[Path], typer.Argument(help="Results of `doap eval`: JSON files, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", help="REPORT: a folder for index.html and tables.md, .csv and .tex.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Put results beside each other: one page with tables, charts and pictures. Computes nothing anew."""
    from doap.evaluation.report import write_report

    written = write_report(results, out)
    if as_json:
        paths = {"page": written.page, "markdown": written.markdown, "csv": written.csv, "latex": written.latex}
        typer.echo(json.dumps({**{name: str(path) for name, path in paths.items()}, "summaries": written.summaries}))
        return
    for name, summary in written.summaries.items():
        typer.echo(f"{name}: {summary}")
    typer.echo(f"look at {written.page}")
