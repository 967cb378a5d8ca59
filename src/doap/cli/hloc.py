"""`doap hloc IMAGES --out FEATURES.h5`: write features and matches in hloc's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from doap._support.text import counted
from doap.cli.options import (
    DEFAULT_DESCRIPTOR,
    AsJson,
    Descriptor,
    Detector,
    Device,
    Masks,
    MaxKeypoints,
    Ratio,
    Tile,
    report_extraction,
)
from doap.cli.progress import SAME_COMMAND, show_progress
from doap.cli.terminal import echo


def hloc(
    images: Annotated[Path, typer.Argument(help="Folder of images, searched recursively.")],
    out: Annotated[Path, typer.Option("--out", help="HDF5 file for the features.")],
    pairs: Annotated[Path | None, typer.Option(help="Text file with two image names per line, to be matched.")] = None,
    matches: Annotated[Path | None, typer.Option(help="HDF5 file for the matches of --pairs.")] = None,
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 2048,
    masks: Masks = None,
    tile: Tile = None,
    ratio: Ratio = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write features, and matches, in hloc's HDF5 format. Resumable: rerun the same command to continue."""
    if (pairs is None) != (matches is None):
        raise typer.BadParameter("--pairs and --matches require each other.")
    import doap

    with show_progress("images", quiet=as_json, resume=SAME_COMMAND) as progress:
        done = doap.write_hloc(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            masks=masks,
            tile=tile,
            pairs=pairs,
            matches=matches,
            ratio=ratio,
            device=device,
            progress=progress,
        )
    report_extraction(done, out, as_json)
    if matches is not None and not as_json:
        echo(f"{matches}: {counted(done.pairs, 'pair')}")
