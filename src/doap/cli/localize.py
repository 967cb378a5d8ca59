"""`doap localize PHOTO… --model MODEL --images IMAGES --cache FOLDER`: poses of photos in a COLMAP model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from doap._support.text import counted
from doap.cli.options import DEFAULT_DESCRIPTOR, AsJson, Descriptor, Detector, Device, MaxKeypoints
from doap.cli.progress import show_progress
from doap.cli.terminal import echo

if TYPE_CHECKING:
    from doap.collection.localization import Localization


def localize(
    photos: Annotated[list[Path], typer.Argument(metavar="PHOTO...", help="Photos to localise.")],
    model: Annotated[Path, typer.Option("--model", help="COLMAP model, such as sparse/0. It is only read.")],
    images: Annotated[Path, typer.Option("--images", help="Folder of the model's images.")],
    cache: Annotated[
        Path, typer.Option("--cache", help="Folder for features and index of the images, reused by later calls.")
    ],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 2048,
    camera: Annotated[
        str | None,
        typer.Option(help="Image of the model taken with the same camera.", show_default="focal length from EXIF data"),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of images to match a photo with.")] = 20,
    threshold: Annotated[float, typer.Option(min=0, help="Inlier threshold in pixels.")] = 8.0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Estimate the poses of photos in an existing COLMAP model. Exits with 1 if a photo has none."""
    import doap

    with show_progress("images", quiet=as_json) as progress:
        localizer = doap.Localizer(
            model,
            images,
            cache,
            descriptor=descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            device=device,
            progress=progress,
        )
    used = localizer.total - len(localizer.skipped)
    example = f"; {reason}" if (reason := next(iter(localizer.skipped.values()), "")) else ""
    echo(f"{used:,} of {counted(localizer.total, 'image')} of the model used{example}", err=True)
    found = {str(photo): localizer.localize(photo, camera=camera, top=top, threshold=threshold) for photo in photos}
    if as_json:
        echo(json.dumps({photo: pose and _values(pose) for photo, pose in found.items()}))
    else:
        for photo, pose in found.items():
            _print(photo, pose)
    raise typer.Exit(0 if all(found.values()) else 1)


def _values(found: Localization) -> dict[str, Any]:
    """Return a pose as JSON values."""
    return {
        "rotation": found.pose.rotation.tolist(),
        "translation": found.pose.translation.tolist(),
        "centre": found.centre.tolist(),
        "focal_length": found.camera.focal_length,
        "matches": found.matches,
        "inliers": found.inliers,
        "reliable": found.reliable,
        "images": found.images,
    }


def _print(photo: str, found: Localization | None) -> None:
    if found is None:
        echo(f"{photo}: no pose found. Does the model show this scene?")
        return
    echo(f"{photo}: {found.inliers:,} of {found.matches:,} matches agree, from {len(found.images)} images")
    if not found.reliable:
        echo("  Few matches agree. Check this pose: repeated structures may have misled it.")
    echo(f"  centre        {_row(found.centre.tolist())}")
    echo(f"  focal length  {found.camera.focal_length:10.1f}")
    for name, row in zip(("rotation", "", ""), found.pose.rotation.tolist(), strict=True):
        echo(f"  {name:12}  {_row(row)}")
    echo(f"  translation   {_row(found.pose.translation.tolist())}")


def _row(values: Iterable[float]) -> str:
    """Return numbers in columns."""
    return "".join(f"{value:10.4f}" for value in values)
