"""`doap features IMAGES --to opensfm --out FOLDER`: write feature files of OpenSfM or openMVG."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Annotated

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
    Verify,
    count_masks,
)
from doap.cli.progress import SAME_COMMAND, show_progress
from doap.cli.terminal import echo
from doap.text import counted


class To(str, Enum):
    """Program that reads the files."""

    opensfm = "opensfm"
    openmvg = "openmvg"


def features(
    images: Annotated[Path, typer.Argument(help="Folder of images, searched recursively.")],
    to: Annotated[To, typer.Option(help="Program that reads the files. ODM uses OpenSfM.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the files: OpenSfM's features, or openMVG's matches.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 8192,
    masks: Masks = None,
    tile: Tile = None,
    verify: Verify = False,
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
            to=to.value,
            detector=detector,
            max_keypoints=max_keypoints,
            masks=masks,
            tile=tile,
            verify=verify,
            device=device,
            progress=progress,
        )
    for reason in done.skipped.values():
        echo(f"skipped: {reason}", err=True)
    if as_json:
        echo(json.dumps(dataclasses.asdict(done), default=str))
        return
    extracted = counted(done.extracted, "image")
    echo(f"{out}: {extracted} extracted, {done.reused:,} unchanged, {len(done.skipped):,} skipped")
    if done.masks is not None:
        echo(count_masks(done.masks))
