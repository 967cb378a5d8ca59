"""`doap eval DESCRIPTOR… BENCHMARK ROOT --out RESULTS`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.progress import reported

if TYPE_CHECKING:
    from doap.evaluation import Result


def evaluate(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="DESCRIPTOR… BENCHMARK ROOT",
            help="Files, names such as rootsift, `baselines` for all of them, `controls` for those that must score "
            "chance; then oxford, phototour, hpatches, romepatches, patches or sweeps; then where its files are.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results; made if it is not there.")],
    detector: Annotated[str, typer.Option(help="For oxford and sweeps: whose keypoints all descriptors see.")] = "sift",
    max_keypoints: Annotated[int, typer.Option(min=2, help="For oxford and sweeps: keypoints of a photo.")] = 2000,
    split: Annotated[str, typer.Option(help="For hpatches: a, b, c, view, illum or full.")] = "a",
    tasks: Annotated[Path | None, typer.Option(help="For hpatches: the task files, if they lie elsewhere.")] = None,
    trained_on: Annotated[str | None, typer.Option(help="For phototour: the set to leave out.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where to keep descriptors for the next time; else in the folder of results.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Judge descriptors side by side on a benchmark; then look with `doap report RESULTS`."""
    from doap.evaluation import evaluate as run

    if len(arguments) < 3:
        raise typer.BadParameter("expected one or more descriptors, a benchmark and a folder")
    *texts, name, root = arguments
    on_photos = {"detector": detector, "max_keypoints": max_keypoints}
    settings: dict[str, dict[str, object]] = {
        "oxford": on_photos,
        "sweeps": on_photos,
        "hpatches": {"split": split, "tasks": tasks},
        "phototour": {"trained_on": trained_on},
    }
    with reported(f"open {name}", quiet=as_json) as report:
        evaluated = run(
            texts,
            name,
            root,
            out,
            settings=settings.get(name),
            cache=cache or out / "cache",
            seed=seed,
            progress=report,
        )
    for descriptor, reason in evaluated.skipped.items():
        typer.echo(f"left out: {descriptor}: {reason}", err=True)
    results = list(evaluated.results.values())
    if as_json:
        figures = {
            one.descriptor.name: {figure.name: asdict(figure.total) for figure in one.figures} for one in results
        }
        paths = {descriptor: str(path) for descriptor, path in evaluated.files.items()}
        typer.echo(json.dumps({"figures": figures, "results": paths, "skipped": evaluated.skipped}))
    elif results:
        _show(results)
        typer.echo(f"look: doap report {out} --out report")
    raise typer.Exit(0 if results else 1)


def _show(results: list[Result]) -> None:
    """A line for each descriptor, the best first, with its first figures."""
    sign = -1 if results[0].headline.better == "higher" else 1
    for result in sorted(results, key=lambda one: sign * one.headline.total.value):
        shown = "  ".join(f"{figure.name} {figure.total.value:.4f}" for figure in result.figures[:4])
        typer.echo(f"{result.descriptor.name:16} {result.descriptor.bytes:5} bytes  {shown}")
