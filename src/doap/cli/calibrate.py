"""`doap calibrate IMAGES --descriptor D --detector K`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.names import DESCRIPTOR_HELP, open_detector
from doap.cli.progress import reported


def calibrate(
    images: Annotated[list[Path], typer.Argument(help="Photos, or folders of them.")],
    descriptor: Annotated[str, typer.Option(help=DESCRIPTOR_HELP)] = "doap-128",
    detector: Annotated[str, typer.Option(help="Whose patches to size.")] = "sift",
    magnification: Annotated[
        list[float] | None, typer.Option(help="One to try; may be repeated. Else those around the detector's own.")
    ] = None,
    photos: Annotated[int, typer.Option(min=1, help="Photos to use, spread over those given.")] = 10,
    views: Annotated[int, typer.Option(min=1, help="Made-up views of each photo.")] = 2,
    roll: Annotated[
        float, typer.Option(min=0, help="Greatest turn between views, in degrees; small if nothing is oriented.")
    ] = 45.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find how large patches should be: the side of a patch over the size of a keypoint."""
    from doap.calibration import calibrate as run
    from doap.images import list_images
    from doap.images.synthetic_views import SyntheticViews

    finder = open_detector(detector)
    given = [file for path in images for file in (list_images(path) if path.is_dir() else [path])]
    chosen = given[:: -(-len(given) // photos)]
    with reported("photos", quiet=as_json) as report:
        calibration = run(
            chosen,
            descriptor,
            finder,
            magnification,
            views=SyntheticViews(count=views, max_roll=roll),
            seed=seed,
            progress=report,
        )
    best = calibration.best
    if as_json:
        told = {"descriptor": descriptor, "detector": detector, "preset": finder.magnification}
        told |= {"best": best.magnification, "open_ended": calibration.open_ended}
        typer.echo(json.dumps(told | dataclasses.asdict(calibration)))
        return
    typer.echo(f"{detector} with {descriptor}: {calibration.pairs} pairs of a photo and a view of it")
    typer.echo("magnification  score")
    for trial in calibration.trials:
        typer.echo(f"{trial.magnification:13.2f}  {trial.score:.4f}{'  best' if trial == best else ''}")
    typer.echo(f"doap has {finder.magnification:g}")
    if calibration.skipped:
        typer.echo(f"{calibration.skipped} pairs skipped: no keypoint was found again")
    if calibration.open_ended:
        typer.echo("the best is at the end of what was tried: try beyond it with --magnification")
