"""`doap train RECIPE --out RUN`: train a descriptor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from doap._support.processes import tune_allocator
from doap.cli.options import AsJson, Device
from doap.cli.progress import SAME_COMMAND, show_progress
from doap.cli.terminal import echo, echo_json


def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe in TOML; see recipes/.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for checkpoints, log and report; resumed if it exists.")],
    data: Annotated[Path | None, typer.Option(help="Patch set to train on.")] = None,
    validation: Annotated[
        Path | None, typer.Option(help="Patch set to validate on.", show_default="a part held out of the training set")
    ] = None,
    init: Annotated[Path | None, typer.Option(help="Initial weights: a *.safetensors file, or doap-128.")] = None,
    regression_set: Annotated[
        Path | None, typer.Option(help="Regression set: warn if mAP on it drops by more than 1 point.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Wall-clock budget, such as 60m or 1.5h, instead of a number of steps.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.", show_default="the recipe's")] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a descriptor for Average Precision. Resumable: rerun the same command to continue.

    On several GPUs: `torchrun --nproc-per-node=8 -m doap train RECIPE --out RUN`.
    """
    # Before torch is imported: memory it has already allocated is not affected.
    tune_allocator()
    import doap
    from doap.training import read_log, read_recipe

    options = {"train": data, "validation": validation, "regression_set": regression_set}
    changes = {"data": _given(**options), "network": _given(init=init), "run": _given(seed=seed)}
    if budget is not None:
        changes["schedule"] = {"minutes": _minutes(budget), "epochs": None, "steps": None}
    config = read_recipe(recipe, **changes)
    # The log of an interrupted run has the number of steps; a resumed run does not report it again.
    log = out / "log.jsonl"
    last: dict[str, Any] = {event["kind"]: event for event in read_log(log)[:1]} if log.exists() else {}
    with show_progress("starting", quiet=as_json, resume=SAME_COMMAND) as progress:

        def show(event: dict[str, Any]) -> None:
            if event["kind"] == "warning":
                echo(f"warning: {event['text']}", err=True)
            last[event["kind"]] = event
            if (minutes := config.schedule.minutes) is None:
                progress(event["step"], last.get("start", {}).get("steps") or 0, _line(last))
            else:
                progress(round(event["seconds"]), round(60 * minutes), f"s, step {event['step']:,}  {_line(last)}")

        best = doap.train(config, out, device=device, on_event=show)
    _report(best, out, last.get("regression_set"), as_json)


def _report(best: Path, out: Path, regression: dict[str, Any] | None, as_json: bool) -> None:
    """Print what happened: steps, time, the change of mAP, and the files."""
    from doap.training import headline, read_log

    events = read_log(out / "log.jsonl")
    validations = [event for event in events if event["kind"] == "validation"]
    # The best step may be an earlier one, possibly of an earlier process.
    scores = [event for event in validations if event.get("best")][-1]
    values = {
        "best": best,
        "report": out / "report.html",
        "map": scores["map"],
        "fpr95": scores["fpr95"],
        "best_step": scores["step"],
        "initial_map": validations[0]["map"] if validations[0]["step"] == 0 else None,
        "steps": events[-1]["step"],
        "seconds": events[-1]["seconds"],
        "regression_set": {when: regression[when] for when in ("before", "after")} if regression else None,
    }
    summary = f"best: mAP {scores['map']:.4f}, FPR95 {scores['fpr95']:.4f} at step {scores['step']:,}"
    if as_json:
        echo_json(values)
    else:
        echo(f"{best}\n{headline(events)}\n{summary}\nWrote {out / 'report.html'}")


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _minutes(budget: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if found is None:
        raise typer.BadParameter(
            f"Expected a duration such as 90s, 60m or 1.5h, got {budget!r}.", param_hint="--budget"
        )
    return float(found[1]) * {"s": 1 / 60, "m": 1, "h": 60}[found[2]]


def _line(last: dict[str, Any]) -> str:
    """Return the latest values of a run in one line."""
    parts = []
    if step := last.get("train"):
        parts.append(f"loss {step['loss']:.4f}  {step['patches_per_second']:,.0f} patches/s")
    if scores := last.get("validation"):
        parts.append(f"mAP {scores['map']:.4f}  FPR95 {scores['fpr95']:.4f}")
    baselines = last.get("start", {}).get("baselines", {})
    parts += [f"{name} {scores['map']:.4f}" for name, scores in baselines.items()]
    return "  ".join(parts)
