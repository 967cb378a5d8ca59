"""`doap colmap IMAGES --out DATABASE`: write a COLMAP database."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.options import DEFAULT_DESCRIPTOR, AsJson, Descriptor, Detector, Device, MaxKeypoints, Ratio
from doap.cli.progress import SAME_COMMAND, show_progress
from doap.cli.terminal import echo
from doap.text import counted


class CameraMode(str, Enum):
    """Which images share a camera."""

    auto = "auto"
    single = "single"
    per_folder = "per-folder"
    per_image = "per-image"


def colmap(
    images: Annotated[Path, typer.Argument(help="Folder of images, searched recursively.")],
    out: Annotated[Path, typer.Option("--out", help="Database file to write.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 8192,
    pairs: Annotated[
        str, typer.Option(help="exhaustive, sequential, or a text file with two image names per line.")
    ] = "exhaustive",
    overlap: Annotated[int, typer.Option(min=1, help="Number of following images to match with sequential.")] = 10,
    ratio: Ratio = None,
    camera_mode: Annotated[
        CameraMode, typer.Option(help="Which images share a camera; auto decides by EXIF.")
    ] = CameraMode.auto,
    matches: Annotated[
        bool, typer.Option("--matches/--no-matches", help="Match the images, or leave that to COLMAP's matcher.")
    ] = True,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write a COLMAP database with keypoints, descriptors and verified matches.

    Resumable: rerun the same command to continue.
    """
    import doap

    with show_progress("images", quiet=as_json, resume=SAME_COMMAND) as progress:
        written = doap.write_colmap(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            pairs=pairs if matches else None,
            overlap=overlap,
            ratio=ratio,
            camera_mode=camera_mode.value,
            device=device,
            progress=progress,
        )
    for reason in written.skipped.values():
        echo(f"skipped: {reason}", err=True)
    if as_json:
        echo(json.dumps({**dataclasses.asdict(written), "out": str(out)}))
        return
    state = "already up to date" if written.unchanged else "written"
    echo(f"{out}: {state}; {counted(written.images, 'image')}, {counted(written.keypoints, 'keypoint')}")
    if matches:
        verified = counted(written.verified_matches, "verified match")
        echo(f"  {counted(written.matches, 'match')} in {counted(written.pairs, 'image pair')}")
        echo(f"  {verified} in {counted(written.verified_pairs, 'image pair')}")
    else:
        echo(f"  match: colmap exhaustive_matcher --database_path {out}")
    echo(f"  next: colmap mapper --database_path {out} --image_path {images} --output_path sparse")
