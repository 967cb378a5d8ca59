"""The command line: one file per verb, each parses, calls one public function and prints.

Nothing heavy is imported here: `doap --help` is instant.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from doap import __version__
from doap.cli import data, index
from doap.cli.calibrate import calibrate
from doap.cli.colmap import colmap
from doap.cli.compare import compare
from doap.cli.doctor import doctor
from doap.cli.eval import evaluate
from doap.cli.export import export
from doap.cli.extract import extract
from doap.cli.match import match
from doap.cli.pairs import pairs
from doap.cli.report import report
from doap.cli.train import train
from doap.errors import DoapError

app = typer.Typer(
    name="doap",
    help="Local image descriptors learned by directly optimising Average Precision.",
    epilog="doap match --sample --out matches.png",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
# Help ends with an example: the epilog.
app.command(epilog="doap match left.jpg right.jpg --out matches.png")(match)
app.command(epilog="doap extract images/ --out features")(extract)
app.command(epilog="doap colmap images/ --out database.db")(colmap)
app.add_typer(index.app, name="index")
app.command(epilog="doap pairs features --out pairs.txt --top 20")(pairs)
app.command(epilog="doap compare photos/ --against sift,rootsift --out report")(compare)
app.command(epilog="doap calibrate photos/ --detector orb --descriptor doap-256bit")(calibrate)
app.add_typer(data.app, name="data")
app.command(epilog="doap train recipes/finetune.toml --data my.patches --budget 60m --out runs/mine")(train)
app.command("eval", epilog="doap eval sift rootsift my.safetensors oxford data/oxford --out results")(evaluate)
app.command(epilog="doap export my.safetensors --to onnx --out my.onnx")(export)
app.command(epilog="doap report results --out report")(report)
app.command(epilog="doap doctor --json")(doctor)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"doap {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Local image descriptors learned by directly optimising Average Precision."""


def main() -> None:
    """Run the command; an error of ours is one line on stderr and exit 1."""
    try:
        app(prog_name="doap")
    except DoapError as error:
        print(f"doap: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
