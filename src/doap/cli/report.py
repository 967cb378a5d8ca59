"""`doap report RESULTS… --out REPORT`: write an HTML page and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.options import AsJson
from doap.cli.terminal import echo


def report(
    results: Annotated[list[Path], typer.Argument(help="JSON files written by `doap eval`, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for index.html, tables.md and tables.tex.")],
    as_json: AsJson = False,
) -> None:
    """Write one HTML page with tables, charts and galleries from existing results."""
    from doap.evaluation import write_report

    written = write_report(results, out)
    if as_json:
        paths = {"page": written.page, "markdown": written.markdown, "latex": written.latex}
        echo(json.dumps({**{name: str(path) for name, path in paths.items()}, "summaries": written.summaries}))
        return
    for name, summary in written.summaries.items():
        echo(f"{name}: {summary}")
    echo(f"Wrote {written.page}")
