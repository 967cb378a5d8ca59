"""The command line: one file per verb, each parses, calls one public function and prints.

Nothing heavy is imported here: `doap --help` is instant.
"""

from __future__ import annotations

import sys

import typer

from doap.cli import data, index
from doap.cli.calibrate import calibrate
from doap.cli.colmap import colmap
from doap.cli.compare import compare
from doap.cli.doctor import doctor
from doap.cli.eval import evaluate
from doap.cli.extract import extract
from doap.cli.match import match
from doap.cli.pairs import pairs
from doap.cli.report import report
from doap.cli.train import train
from doap.errors import DoapError

app = typer.Typer(
    name="doap",
    help="Local image descriptors learned by directly optimising Average Precision.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(match)
app.command()(extract)
app.command()(colmap)
app.add_typer(index.app, name="index")
app.command()(pairs)
app.command()(compare)
app.command()(calibrate)
app.add_typer(data.app, name="data")
app.command()(train)
app.command("eval")(evaluate)
app.command()(report)
app.command()(doctor)


@app.callback()
def _root() -> None:
    """Local image descriptors learned by directly optimising Average Precision."""


def main() -> None:
    """Run the command; an error of ours is one line on stderr and exit 1."""
    try:
        app()
    except DoapError as error:
        print(f"doap: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
