"""`doap colmap IMAGES --out DATABASE`."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.names import DESCRIPTOR_HELP
from doap.cli.progress import reported


class CameraMode(str, Enum):
    """Which images share a camera."""

    auto = "auto"
    single = "single"
    per_folder = "per-folder"
    per_image = "per-image"


def colmap(
    images: Annotated[Path, typer.Argument(help="Folder of photos.")],
    out: Annotated[Path, typer.Option("--out", help="The database to write.")],
    descriptor: Annotated[str, typer.Option(help=DESCRIPTOR_HELP)] = "doap-128",
    detector: Annotated[str, typer.Option(help="Where to look for keypoints.")] = "sift",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Keypoints to keep of each photo, the strongest.")] = 8192,
    pairs: Annotated[
        str, typer.Option(help="Photos to match: exhaustive, sequential, or a file with two names to a line.")
    ] = "exhaustive",
    overlap: Annotated[int, typer.Option(min=1, help="For sequential: how many of the next photos.")] = 10,
    ratio: Annotated[float | None, typer.Option(min=0, max=1, help="Ratio test, such as 0.8.")] = None,
    camera_mode: Annotated[CameraMode, typer.Option(help="Photos of one camera; auto goes by EXIF.")] = CameraMode.auto,
    matches: Annotated[
        bool, typer.Option("--matches/--no-matches", help="Without matches, for COLMAP's own matcher.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a COLMAP database: keypoints, descriptors and verified matches. Killed? The same command resumes."""
    from doap.export.colmap import write_colmap

    with reported("photos", quiet=as_json) as report:
        written = write_colmap(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            pairs=pairs if matches else None,
            overlap=overlap,
            ratio=ratio,
            camera_mode=camera_mode.value,
            progress=report,
        )
    for reason in written.skipped.values():
        typer.echo(f"left out: {reason}", err=True)
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(written), "out": str(out)}))
        return
    state = "finished before, nothing to do" if written.unchanged else "written"
    typer.echo(f"{out}: {state}; {written.images:,} images, {written.keypoints:,} keypoints")
    if matches:
        typer.echo(f"  {written.matches:,} matches in {written.pairs:,} pairs of images")
        typer.echo(f"  {written.verified_matches:,} of them verified, in {written.verified_pairs:,} pairs")
    else:
        typer.echo(f"  match: colmap exhaustive_matcher --database_path {out}")
    typer.echo(f"  then: colmap mapper --database_path {out} --image_path {images} --output_path sparse")
