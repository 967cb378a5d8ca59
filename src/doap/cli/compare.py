"""`doap compare PHOTOS --against sift,rootsift --out REPORT`: should I switch?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.names import DESCRIPTOR_HELP
from doap.cli.progress import reported

if TYPE_CHECKING:
    from doap.evaluation import Comparison


def compare(
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTOS", help="Your photos, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", help="REPORT: a folder for index.html and comparison.json.")],
    descriptor: Annotated[str, typer.Option(help=f"The candidate. {DESCRIPTOR_HELP}")] = "doap-128",
    against: Annotated[str, typer.Option(help="What you use now, and others: names or files, with commas.")] = (
        "sift,rootsift"
    ),
    detector: Annotated[str, typer.Option(help="Whose keypoints all of them see.")] = "sift",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Keypoints of a photo, the strongest.")] = 2048,
    number: Annotated[int, typer.Option("--photos", min=1, help="Photos to judge on, spread over those given.")] = 20,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of them to match; neighbours first if not all.")] = 200,
    reconstruction: Annotated[
        bool, typer.Option("--reconstruction/--no-reconstruction", help="Whether COLMAP reconstructs too.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Should I switch? Hold a descriptor against others on your own photos; the answer may be to stay."""
    from doap.evaluation import compare as run

    with reported("photos", quiet=as_json) as report:
        comparison = run(
            photos,
            out,
            descriptor=descriptor,
            baselines=[*filter(None, map(str.strip, against.split(",")))],
            detector=detector,
            max_keypoints=max_keypoints,
            max_photos=number,
            max_pairs=pairs,
            reconstruction=reconstruction,
            seed=seed,
            progress=report,
        )
    for reason in comparison.skipped.values():
        typer.echo(f"left out: {reason}", err=True)
    if as_json:
        typer.echo(json.dumps(comparison.to_json()))
        return
    _show(comparison)
    typer.echo(f"look at {out / 'index.html'}")


def _show(comparison: Comparison) -> None:
    """The figures, descriptors across; then the sentence."""
    names = [one.name for one in comparison.descriptors]
    typer.echo(f"{'':22}" + "".join(f"{name:>14}" for name in names))
    for stage in (comparison.pairs, comparison.views):
        for figure, metric in stage.metrics.items():
            typer.echo(f"{figure:22}" + "".join(f"{metric.means[name].value:14.3f}" for name in names))
    if comparison.reconstructions:
        for figure in ("registered", "points"):
            values = (getattr(comparison.reconstructions[name], figure) for name in names)
            typer.echo(f"{figure:22}" + "".join(f"{value:14,}" for value in values))
    else:
        typer.echo(f"no reconstruction: {comparison.reconstruction_note}")
    typer.echo(comparison.verdict.sentence)
