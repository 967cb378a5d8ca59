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

    summaries = write_report(results, out)
    if as_json:
        files = {"page": "index.html", "markdown": "tables.md", "latex": "tables.tex"}
        echo(json.dumps({**{kind: str(out / name) for kind, name in files.items()}, "summaries": summaries}))
        return
    for name, summary in summaries.items():
        echo(f"{name}: {summary}")
    echo(f"Wrote {out / 'index.html'}")
