"""`doap train RECIPE --out RUN`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from doap.cli.progress import progress_bar
from doap.processes import tune_allocator


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe; recipes/ has some.")],
    out: Annotated[
        Path, typer.Option("--out", help="RUN: checkpoints, log and report go there; resumed if it exists.")
    ],
    data: Annotated[Path | None, typer.Option(help="The patch-group set to train on.")] = None,
    validation: Annotated[Path | None, typer.Option(help="Another set to judge on; else places are held out.")] = None,
    start: Annotated[
        Path | None, typer.Option("--start", "--init", help="Weights to start from: a file, or doap-128.")
    ] = None,
    general: Annotated[
        Path | None, typer.Option(help="A set that must not suffer: a loss of more than 1 point there is warned of.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Wall-clock time, such as 60m or 1.5h, instead of steps.")] = None,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    allocator: Annotated[
        str, typer.Option(help="`tuned` keeps freed memory, `default` leaves malloc alone.")
    ] = "tuned",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a descriptor for Average Precision. Killed? The same command resumes.

    Several processes: `torchrun --nproc-per-node=8 -m doap train RECIPE --out RUN`.
    """
    # Before torch, whose first tensors would be allocated the old way.
    tuned = tune_allocator() if allocator == "tuned" else "default"
    from doap.training import read_log, read_recipe
    from doap.training import train as run

    given: dict[str, dict[str, Any]] = {
        "data": {"train": data, "validation": validation, "regression_set": general},
        "network": {"init": start},
        "run": {"seed": seed},
    }
    changes = {
        section: {key: value for key, value in fields.items() if value is not None} for section, fields in given.items()
    }
    if budget is not None:
        changes["schedule"] = {"minutes": _minutes(budget), "epochs": None, "steps": None}
    config = read_recipe(recipe, **changes)
    last: dict[str, Any] = {}
    with progress_bar(quiet=as_json) as bar:
        task = bar.add_task("starting", total=None)

        def report(event: dict[str, Any]) -> None:
            if event["kind"] == "warning":
                typer.echo(f"warning: {event['text']}", err=True)
            last[event["kind"]] = event
            total = last.get("start", {}).get("steps")
            bar.update(task, completed=event["step"], total=total, description=_line(last))

        best = run(config, out, on_event=report, allocator=tuned)
    # Of the file that is named, which need not be the last, nor from this process.
    judged = last["validation"] = [event for event in read_log(out / "log.jsonl") if event.get("best")][-1]
    told = {
        "best": str(best),
        "report": str(out / "report.html"),
        "map": judged["map"],
        "fpr95": judged["fpr95"],
        "regression_set": (
            {when: last["regression_set"][when] for when in ("before", "after")} if "regression_set" in last else None
        ),
    }
    typer.echo(json.dumps(told) if as_json else f"{best}\n{_line(last)}\nlook at {out / 'report.html'}")


def _minutes(budget: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if found is None:
        raise typer.BadParameter(f"expected a time such as 90s, 60m or 1.5h, got {budget!r}", param_hint="--budget")
    return float(found[1]) * {"s": 1 / 60, "m": 1, "h": 60}[found[2]]


def _line(last: dict[str, Any]) -> str:
    """The newest figures in one line."""
    parts = []
    if step := last.get("train"):
        parts.append(f"loss {step['loss']:.4f}  {step['patches_per_second']:,.0f} patches/s")
    if judged := last.get("validation"):
        parts.append(f"mAP {judged['map']:.4f}  FPR95 {judged['fpr95']:.4f}")
    baselines = last.get("start", {}).get("baselines", {})
    parts += [f"{name} {one['map']:.4f}" for name, one in baselines.items()]
    return "  ".join(parts)
