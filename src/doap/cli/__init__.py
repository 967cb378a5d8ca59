"""The command line: one file per command. Each parses its arguments, calls one public function and prints.

Heavy modules are imported inside the commands, so that `doap --help` is instant.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

from doap import __version__
from doap._support.errors import DoapError, is_out_of_memory
from doap.cli import data, index
from doap.cli.commands import CommandGroup
from doap.cli.compare import compare
from doap.cli.doctor import doctor
from doap.cli.eval import evaluate
from doap.cli.export import colmap, export, hloc, opensfm
from doap.cli.extract import extract
from doap.cli.localize import localize
from doap.cli.match import match
from doap.cli.pairs import pairs
from doap.cli.progress import INTERRUPTED
from doap.cli.report import report
from doap.cli.terminal import echo
from doap.cli.train import train

app = CommandGroup(
    name="doap",
    help="Learn, evaluate and deploy local image descriptors optimised for Average Precision.",
    epilog="doap match --sample --out matches.png",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
# The epilog is an example, printed at the end of the help.
app.command(epilog="doap match left.jpg right.jpg --out matches.png")(match)
app.command(epilog="doap compare photos/ --baselines sift,rootsift --out report")(compare)
app.command(epilog="doap extract images/ --out features")(extract)
app.command(epilog="doap colmap images/ --out database.db")(colmap)
app.command(epilog="doap hloc images/ --out features.h5")(hloc)
app.command(epilog="doap opensfm images/ --out features")(opensfm)
app.command(epilog="doap localize photo.jpg --model sparse/0 --images images/ --cache localization")(localize)
app.command(epilog="doap export my.safetensors --to onnx --out my.onnx")(export)
app.add_typer(index.app, name="index")
app.command(epilog="doap pairs features --out pairs.txt --top 20")(pairs)
app.add_typer(data.app, name="data")
app.command(epilog="doap train recipes/finetune.toml --data my.patches --budget 60m --out runs/mine")(train)
app.command("eval", epilog="doap eval sift rootsift my.safetensors oxford data/oxford --out results")(evaluate)
app.command(epilog="doap report results --out report")(report)
app.command(epilog="doap doctor --json")(doctor)


def _print_version(requested: bool) -> None:
    if requested:
        echo(f"doap {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn, evaluate and deploy local image descriptors optimised for Average Precision."""


def main() -> None:
    """Run the command line.

    A `DoapError`, a fault of the file system and too little memory are printed as one line, with exit code 1. Ctrl-C is
    one line with exit code 130.
    """
    try:
        app(prog_name="doap")
    except SystemExit as end:
        # Typer exits silently where a command does not handle Ctrl-C itself.
        if end.code == INTERRUPTED and isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            echo("Interrupted.", err=True)
        raise
    except KeyboardInterrupt:
        echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not (line := _explain(error)):
            raise
        echo(f"doap: {line}", err=True)
        sys.exit(1)


def _explain(error: Exception) -> str | None:
    """Return one line about a `DoapError` or a fault of the machine; None for other exceptions, which are bugs."""
    if is_out_of_memory(error):
        return "Not enough memory. Use smaller images or batches, fewer workers, or a machine with more memory."
    if isinstance(error, DoapError):
        return " ".join(str(error).split())
    # Without a number, it is not about a file: the message of a library.
    if not isinstance(error, OSError) or error.errno is None:
        return None
    name = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    remedy = "Check the path, the permissions and the free space."
    if error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "Use fewer workers, or raise the limit with `ulimit -n`."
    return f"{name}{error.strerror}. {remedy}"
