"""`doap match A B`: match two images, verify the matches, and draw them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import doap
from doap._support.text import counted
from doap.cli.options import (
    DEFAULT_DESCRIPTOR,
    AsJson,
    Descriptor,
    Detector,
    Device,
    MaxKeypoints,
    NetworkPrecision,
    Ratio,
)
from doap.cli.progress import show_progress
from doap.cli.terminal import check_writable, echo, echo_json, write_picture

Model = Literal["fundamental", "homography"]
SAMPLES = [Path(doap.__file__).parent / "images" / "samples" / name for name in ("photo.jpg", "print.jpg")]
"""Two bundled images; images/samples/README.md has their source and licence."""


def match(
    image0: Annotated[Path | None, typer.Argument(metavar="A", help="First image.")] = None,
    image1: Annotated[Path | None, typer.Argument(metavar="B", help="Second image of the same scene.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Match the two bundled sample images.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Image file for a drawing of the matches.")] = None,
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 8192,
    ratio: Ratio = None,
    filter: Annotated[
        Literal["adalam"] | None,
        typer.Option(help="Drop matches that disagree with their neighbours; adalam needs the extra kornia."),
    ] = None,
    model: Annotated[
        Model, typer.Option(help="Geometric model; homography suits planar scenes and rotating cameras.")
    ] = "fundamental",
    threshold: Annotated[float, typer.Option(min=0, help="Inlier threshold in pixels.")] = 1.5,
    device: Device = "auto",
    precision: NetworkPrecision = "auto",
    as_json: AsJson = False,
) -> None:
    """Match two images and report how many matches are geometrically consistent."""
    images = [path for path in (image0, image1) if path]
    if len(images) != (0 if sample else 2):
        raise typer.BadParameter(f"Expected two images, A and B, or --sample without images; got {len(images)}.")
    if out is not None:
        check_writable(out)
    first, second = SAMPLES if sample else images
    with show_progress("images", quiet=as_json) as progress:
        found = doap.match_images(
            first,
            second,
            doap.load(descriptor, device=device, precision=precision),
            detector=detector,
            max_keypoints=max_keypoints,
            ratio=ratio,
            filter=filter,
            model=model,
            threshold=threshold,
            progress=progress,
        )
    keypoints = len(found.features0), len(found.features1)
    matches, inliers = len(found.matches), int(found.geometry.inliers.sum())
    summary = f"{counted(matches, 'match')} · {counted(inliers, 'inlier')} · {Path(descriptor).stem}"
    if out is not None:
        write_picture(found.draw(summary), out)
    if as_json:
        matrix = found.geometry.matrix
        values = {
            "keypoints": keypoints,
            "matches": matches,
            "inliers": inliers,
            "inlier_ratio": inliers / matches if matches else None,
            "matrix": None if matrix is None else matrix.tolist(),
            "out": out,
        }
        echo_json(values)
        return
    _warn_without_keypoints(dict(zip((first, second), keypoints, strict=True)))
    echo(f"{keypoints[0]:,} and {counted(keypoints[1], 'keypoint')} · {summary}")
    if out is not None:
        echo(f"Wrote {out}")


def _warn_without_keypoints(keypoints: dict[Path, int]) -> None:
    """Explain on stderr why an image may have no keypoints."""
    for path, count in keypoints.items():
        if not count:
            echo(
                f"{path}: no keypoints detected. The image may be flat, blurred or very small; try --detector orb.",
                err=True,
            )
