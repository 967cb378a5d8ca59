"""`doap pairs FEATURES --out pairs.txt`: which images are worth matching."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.progress import reported


def pairs(
    features: Annotated[Path, typer.Argument(help="Features of the images, by doap extract.")],
    out: Annotated[Path, typer.Option("--out", help="The list to write: two names to a line.")],
    top: Annotated[int, typer.Option(min=1, help="Others to take for each image.")] = 20,
    index: Annotated[
        Path | None, typer.Option(help="Where to look for others; else an index is made for the moment.")
    ] = None,
    max_keypoints: Annotated[int, typer.Option(min=1, help="Keypoints of an image that vote, the strongest.")] = 300,
    neighbours: Annotated[int, typer.Option(min=1, help="Nearest descriptors that each of them votes by.")] = 32,
    nprobe: Annotated[int | None, typer.Option(min=1, help="Lists of the index to look through.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose pairs of images that may show the same, for COLMAP, hloc and `doap colmap --pairs`."""
    from doap.scale.features import FeatureSet
    from doap.scale.index import Index
    from doap.scale.pairs import select_pairs, write_pairs

    opened = FeatureSet(features)
    place = Index(index) if index is not None else None
    with reported("images", quiet=as_json) as report:
        chosen = select_pairs(
            opened,
            top=top,
            index=place,
            max_keypoints=max_keypoints,
            neighbours=neighbours,
            probes=nprobe,
            progress=report,
        )
    write_pairs(chosen, out)
    images = len(opened)
    all_pairs = images * (images - 1) // 2
    share = len(chosen) / all_pairs if all_pairs else None
    if as_json:
        typer.echo(json.dumps({"out": str(out), "images": images, "pairs": len(chosen), "share": share}))
        return
    told = "" if share is None else f", {share:.1%} of all there are"
    typer.echo(f"{out}: {len(chosen):,} pairs of {images:,} images{told}")
    typer.echo(f"  match them: doap colmap IMAGES --out database.db --pairs {out}")
