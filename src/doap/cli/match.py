"""`doap match A B`: how many keypoints of two photos look alike, how many agree, and a picture of it."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import doap
from doap.cli.names import DESCRIPTOR_HELP
from doap.cli.picture import check_writable, write_picture

SAMPLES = [Path(doap.__file__).parent / "samples" / name for name in ("photo.jpg", "print.jpg")]
"""Two pictures that come with doap; README.md beside them says what they are and whose."""


class Model(str, Enum):
    """What the matches should agree on."""

    fundamental = "fundamental"
    homography = "homography"


def match(
    image0: Annotated[Path | None, typer.Argument(metavar="A", help="A photo.")] = None,
    image1: Annotated[Path | None, typer.Argument(metavar="B", help="Another one of the same scene.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Two pictures of doap's own, in place of A and B.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="A picture of the matches to write, such as m.png.")] = None,
    descriptor: Annotated[str, typer.Option(help=DESCRIPTOR_HELP)] = "doap-128",
    detector: Annotated[str, typer.Option(help="Where to look.")] = "sift",
    max_keypoints: Annotated[int, typer.Option(min=1, help="Keypoints of a photo, the strongest.")] = 2048,
    ratio: Annotated[float | None, typer.Option(min=0, max=1, help="Ratio test, such as 0.8.")] = None,
    model: Annotated[Model, typer.Option(help="homography is for planes and turning cameras.")] = Model.fundamental,
    threshold: Annotated[float, typer.Option(min=0, help="Pixels that an inlier may be off.")] = 1.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Match two photos and say how many matches agree with one geometry."""
    given = [path for path in (image0, image1) if path]
    if len(given) != (0 if sample else 2):
        raise typer.BadParameter(f"expected two photos, A and B, or --sample and none, got {len(given)}")
    if out is not None:
        check_writable(out)
    path0, path1 = SAMPLES if sample else given
    found = doap.match_images(
        path0,
        path1,
        descriptor,
        detector=detector,
        max_keypoints=max_keypoints,
        ratio=ratio,
        model=model.value,
        threshold=threshold,
    )
    matches, view, inliers = found.matches, found.geometry, int(found.geometry.inliers.sum())
    line = f"{len(matches):,} matches · {inliers:,} inliers · {Path(descriptor).stem}"
    if out is not None:
        write_picture(found.draw(line), out)
    if as_json:
        told = {
            "keypoints": [len(found.features0), len(found.features1)],
            "matches": len(matches),
            "inliers": inliers,
            "inlier_ratio": inliers / len(matches) if len(matches) else None,
            "matrix": None if view.matrix is None else view.matrix.tolist(),
            "out": out and str(out),
        }
        typer.echo(json.dumps(told))
        return
    typer.echo(f"{len(found.features0):,} and {len(found.features1):,} keypoints · {line}")
    if out is not None:
        typer.echo(f"look at {out}")
