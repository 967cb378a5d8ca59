"""`doap match A B`: how many keypoints of two photos look alike, how many agree, and a picture of it."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import doap
from doap.cli.names import DESCRIPTOR_HELP, open_detector
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
    from doap import pipeline
    from doap.images import draw_matches, read_grey

    if out is not None:
        check_writable(out)
    describer, finder = doap.load(descriptor), open_detector(detector)
    path0, path1 = SAMPLES if sample else given
    photos = read_grey(path0), read_grey(path1)
    features0, features1 = (
        pipeline.extract(photo, describer, detector=finder, max_keypoints=max_keypoints) for photo in photos
    )
    matches = pipeline.match(features0, features1, ratio=ratio)
    view = pipeline.verify(features0, features1, matches, model=model.value, threshold=threshold)
    inliers = int(view.inliers.sum())
    line = f"{len(matches):,} matches · {inliers:,} inliers · {Path(descriptor).stem}"
    if out is not None:
        points = features0.keypoints, features1.keypoints
        write_picture(draw_matches(*photos, *points, matches, view.inliers, line), out)
    if as_json:
        told = {
            "keypoints": [len(features0), len(features1)],
            "matches": len(matches),
            "inliers": inliers,
            "inlier_ratio": inliers / len(matches) if len(matches) else None,
            "matrix": None if view.matrix is None else view.matrix.tolist(),
            "out": out and str(out),
        }
        typer.echo(json.dumps(told))
        return
    typer.echo(f"{len(features0):,} and {len(features1):,} keypoints · {line}")
    if out is not None:
        typer.echo(f"look at {out}")
