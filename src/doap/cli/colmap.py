"""`doap colmap IMAGES --out DATABASE`: write a COLMAP database."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from doap._support.text import counted
from doap.cli.options import DEFAULT_DESCRIPTOR, AsJson, Descriptor, Device, Masks, Tile, count_masks
from doap.cli.progress import SAME_COMMAND, show_progress
from doap.cli.terminal import echo

if TYPE_CHECKING:
    from doap.export.colmap import ColmapSummary


OwnDetector = Annotated[str | None, typer.Option(help="Keypoint detector.", show_default="colmap-default, or its own")]
ColmapKeypoints = Annotated[int, typer.Option(min=1, help="Maximum per image, counted as in COLMAP.")]
MaxError = Annotated[
    float,
    typer.Option(min=0.1, help="Maximum epipolar error in pixels of a verified match."),
]


def colmap(
    images: Annotated[Path, typer.Argument(help="Folder of images, searched recursively.")],
    out: Annotated[Path, typer.Option("--out", help="Database file to write.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: OwnDetector = None,
    max_keypoints: ColmapKeypoints = 8192,
    masks: Masks = None,
    tile: Tile = None,
    pairs: Annotated[
        str, typer.Option(help="exhaustive, sequential, or a text file with two image names per line.")
    ] = "exhaustive",
    overlap: Annotated[int, typer.Option(min=1, help="With sequential: number of following images.")] = 10,
    ratio: Annotated[float, typer.Option(min=0, max=1, help="Threshold of the ratio test; 1 omits it.")] = 0.9,
    max_error: MaxError = 1.0,
    camera_mode: Annotated[
        Literal["auto", "single", "per-folder", "per-image"],
        typer.Option(
            metavar="<mode>", help="Images that share a camera: auto (by EXIF), single, per-folder, per-image."
        ),
    ] = "auto",
    no_matches: Annotated[bool, typer.Option("--no-matches", help="Leave matching to COLMAP's matcher.")] = False,
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
            masks=masks,
            tile=tile,
            pairs=None if no_matches else pairs,
            overlap=overlap,
            ratio=ratio,
            max_error=max_error,
            camera_mode=camera_mode,
            device=device,
            progress=progress,
        )
    _report(written, images, not no_matches, as_json)


def _report(written: ColmapSummary, images: Path, matches: bool, as_json: bool) -> None:
    """Print what was written, and the next step."""
    out = written.out
    for reason in written.skipped.values():
        echo(f"skipped: {reason}", err=True)
    if as_json:
        echo(json.dumps({**dataclasses.asdict(written), "out": str(out)}))
        return
    state = "already up to date" if written.unchanged else "written"
    echo(f"{out}: {state}; {counted(written.images, 'image')}, {counted(written.keypoints, 'keypoint')}")
    if written.masks is not None:
        echo(count_masks(written.masks))
    if written.descriptors:
        echo("  descriptors have the label SIFT for COLMAP's own matcher; do not use its SIFT LightGlue with them")
    if matches:
        verified = counted(written.verified_matches, "verified match")
        echo(f"  {counted(written.matches, 'match')} in {counted(written.pairs, 'image pair')}")
        echo(f"  {verified} in {counted(written.verified_pairs, 'image pair')}")
    else:
        echo(f"  match: colmap exhaustive_matcher --database_path {out}")
    echo(f"  next: colmap mapper --database_path {out} --image_path {images} --output_path sparse")
