"""`doap calibrate IMAGES --descriptor D --detector K`: find the best patch size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from doap._support.text import counted
from doap.cli.options import DEFAULT_DESCRIPTOR, AsJson, Descriptor, Device, Seed, Views
from doap.cli.progress import show_progress
from doap.cli.terminal import echo


def calibrate(
    images: Annotated[list[Path], typer.Argument(help="Photos, or folders of photos.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Annotated[str, typer.Option(help="Keypoint detector to calibrate.")] = "sift",
    magnification: Annotated[
        list[float] | None,
        typer.Option(help="Value to try; repeatable.", show_default="seven values around the detector's own"),
    ] = None,
    max_photos: Annotated[int, typer.Option(min=1, help="Maximum number of photos, spread over all.")] = 10,
    views: Views = 2,
    roll: Annotated[
        float, typer.Option(min=0, help="Maximum in-plane rotation in degrees; use a small one without orientation.")
    ] = 45.0,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find the best magnification of a detector: patch side divided by keypoint size."""
    import doap
    from doap.detectors import as_detector
    from doap.images import list_images
    from doap.images.synthetic_views import SyntheticViews

    files = [file for path in images for file in (list_images(path) if path.is_dir() else [path])]
    with show_progress("photos", quiet=as_json) as progress:
        calibration = doap.calibrate(
            files[:: -(-len(files) // max_photos)],
            descriptor,
            detector,
            magnification,
            views=SyntheticViews(count=views, max_roll=roll),
            seed=seed,
            device=device,
            progress=progress,
        )
    best, present = calibration.best, as_detector(detector).magnification
    if as_json:
        values = {"descriptor": descriptor, "detector": detector, "preset": present}
        values |= {"best": best.magnification, "open_ended": calibration.open_ended}
        echo(json.dumps(values | dataclasses.asdict(calibration)))
        return
    echo(f"{detector} with {descriptor}: {counted(calibration.pairs, 'pair')} of a photo and a synthetic view")
    echo("magnification  score")
    for trial in calibration.trials:
        echo(f"{trial.magnification:13.2f}  {trial.score:.4f}{'  best' if trial == best else ''}")
    echo(f"preset of {detector}: {present:g}")
    if calibration.skipped:
        echo(f"{counted(calibration.skipped, 'pair')} skipped: no keypoint was detected in both images")
    if calibration.open_ended:
        echo("The best value is at the end of the range. Try values beyond it with --magnification.")
