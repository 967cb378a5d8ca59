"""`doap features IMAGES --to opensfm --out FOLDER`: write feature files of OpenSfM or openMVG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from doap.cli.options import (
    DEFAULT_DESCRIPTOR,
    AsJson,
    Descriptor,
    Detector,
    Device,
    Masks,
    MaxKeypoints,
    Tile,
    report_extraction,
)
from doap.cli.progress import SAME_COMMAND, show_progress


def features(
    images: Annotated[Path, typer.Argument(help="Folder of images, searched recursively.")],
    to: Annotated[Literal["opensfm", "openmvg"], typer.Option(help="Program that reads the files. ODM uses OpenSfM.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the files: OpenSfM's features, or openMVG's matches.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 8192,
    masks: Masks = None,
    tile: Tile = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write feature files of OpenSfM (and ODM) or openMVG. Resumable: rerun the same command to continue."""
    import doap

    with show_progress("images", quiet=as_json, resume=SAME_COMMAND) as progress:
        done = doap.write_features(
            images,
            out,
            descriptor,
            to=to,
            detector=detector,
            max_keypoints=max_keypoints,
            masks=masks,
            tile=tile,
            device=device,
            progress=progress,
        )
    report_extraction(done, out, as_json)
