"""`doap pairs FEATURES --out pairs.txt`: select image pairs to match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from doap._support.text import counted
from doap.cli.options import AsJson, IndexEngineOption, Uri, open_index
from doap.cli.progress import show_progress
from doap.cli.terminal import echo


def pairs(
    features: Annotated[
        str, typer.Argument(help="Folder of features written by `doap extract`; a path or an s3:// URL.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Text file to write, two image names per line.")],
    top: Annotated[int, typer.Option(min=1, help="Number of partners per image.")] = 20,
    index: Annotated[
        str | None,
        typer.Option(
            help="Index to search: its folder, or its name in Milvus.",
            show_default="a temporary index of the features",
        ),
    ] = None,
    max_keypoints: Annotated[int, typer.Option(min=1, help="Maximum number of voting keypoints per image.")] = 300,
    probes: Annotated[int | None, typer.Option(min=1, help="Number of inverted lists to search.")] = None,
    engine: IndexEngineOption = "faiss",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Select the image pairs that are likely to overlap, for `doap colmap --pairs`, COLMAP and hloc."""
    from doap.collection import FeatureSet, select_pairs, write_pairs

    opened, searched = FeatureSet(features), None if index is None else open_index(index, engine, uri)
    with show_progress("images", quiet=as_json) as progress:
        selected = select_pairs(
            opened, top=top, index=searched, max_keypoints=max_keypoints, probes=probes, progress=progress
        )
    write_pairs(selected, out)
    images = len(opened)
    all_pairs = images * (images - 1) // 2
    share = len(selected) / all_pairs if all_pairs else None
    if as_json:
        echo(json.dumps({"out": str(out), "images": images, "pairs": len(selected), "share": share}))
        return
    note = "" if share is None else f", {share:.1%} of all pairs"
    echo(f"{out}: {counted(len(selected), 'pair')} of {counted(images, 'image')}{note}")
    echo(f"  match them: doap colmap IMAGES --out database.db --pairs {out}")
