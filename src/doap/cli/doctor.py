"""`doap doctor`: diagnose an installation."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import typer

from doap.cli.options import AsJson
from doap.cli.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table


def doctor(as_json: AsJson = False) -> None:
    """Print versions, devices and what works on this machine. Exits with 1 if a required library is broken."""
    from doap._support.processes import tune_allocator
    from doap.doctor import diagnose

    allocator = tune_allocator()
    # Some libraries print their problems to stdout, which is reserved for our own output.
    with redirect_stdout(sys.stderr):
        found = {**diagnose(), "allocator": allocator}
    if as_json:
        echo(json.dumps(found))
    else:
        _show(found)
    raise typer.Exit(1 if found["broken"] else 0)


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(found))
    for warning in found["warnings"]:
        console.print(f"[yellow]warning[/] {warning}", soft_wrap=True)
    if found["broken"]:
        console.print(f"[red]broken[/] doap needs {', '.join(found['broken'])}; reinstall doap.", soft_wrap=True)


def _table(found: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(style="bold")
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for section, rows in _sections(found).items():
        for number, (name, value) in enumerate(rows.items()):
            table.add_row("" if number else section, *_marked(name, value))
    return table


def _marked(name: str, value: Any) -> tuple[str, str, str]:
    from rich.markup import escape

    text = {True: "yes", False: "no", None: "none"}.get(value, str(value))
    mark = "[green]✓[/]" if value and not text.startswith("missing") else "[dim]–[/]"
    return "[red]✗[/]" if text.startswith("broken") else mark, name, escape(text)


def _sections(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Arrange the findings in sections of rows."""
    device, instructions = found["device"], found["instructions"]
    if isinstance(device, dict):
        device = f"{device['kind']}: {device['name']}, {device['threads']} threads"
    wheels = ", ".join(f"{name} {version}" for name, version in found["opencv"]["wheels"].items())
    return {
        "versions": {**found["versions"], "platform": found["platform"]},
        "opencv": {"contrib": found["opencv"]["contrib"], "package": wheels or None},
        "machine": {
            "device": device,
            "instructions": " ".join(instructions) if isinstance(instructions, list) else instructions,
            "fast bf16": found["fast_bf16"],
            "malloc (doap train)": found["allocator"],
        },
        "extras": found["extras"],
        "weights": dict.fromkeys(found["weights"], "shipped") or {"shipped": None},
        **{
            part: found[part] if isinstance(found[part], dict) else {"all": found[part]}
            for part in ("baselines", "detectors")
        },
    }
