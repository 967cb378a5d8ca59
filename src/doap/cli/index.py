"""`doap index …`: find images among many by their local descriptors."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.picture import check_writable, write_picture
from doap.cli.progress import reported

if TYPE_CHECKING:
    from doap.scale.search import SearchResult

app = typer.Typer(
    help="An index of many images: build it, change it, find a photo's like in it.",
    epilog="doap index search photo.jpg --index images.index",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="An index.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class Kind(str, Enum):
    """What an index is; `ivf-pq` is for real descriptors."""

    flat = "flat"
    ivf = "ivf"
    ivf_pq = "ivf-pq"


@app.command(epilog="doap index build features --out images.index")
def build(
    features: Annotated[Path, typer.Argument(help="Features of the images, by doap extract.")],
    out: Annotated[Path, typer.Option("--out", help="The index to make: a folder that does not exist yet.")],
    kind: Annotated[Kind | None, typer.Option(help="What to make; else by the number of descriptors.")] = None,
    shards: Annotated[int, typer.Option(min=1, help="Files of nearly equal size, searched as one.")] = 1,
    max_keypoints: Annotated[
        int | None, typer.Option(min=1, help="Descriptors of an image, the strongest; else all.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample that is trained on.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make an index of the features of many images."""
    from doap.scale.features import FeatureSet
    from doap.scale.index import build_index

    with reported("images", quiet=as_json) as report:
        build_index(
            FeatureSet(features),
            out,
            kind=kind.value if kind else None,
            shards=shards,
            max_keypoints=max_keypoints,
            seed=seed,
            progress=report,
        )
    _show(out, as_json)


@app.command(epilog="doap index search photo.jpg --index images.index --verify")
def search(
    query: Annotated[Path, typer.Argument(help="A photo.")],
    index: Annotated[Path, typer.Option("--index", help="Where to look.")],
    top: Annotated[int, typer.Option(min=1, help="Images to find.")] = 10,
    verify: Annotated[bool, typer.Option("--verify", help="Check the geometry of the best, and sort by it.")] = False,
    features: Annotated[
        Path | None, typer.Option(help="The index's features: verify with all keypoints, not those that voted alone.")
    ] = None,
    nprobe: Annotated[int | None, typer.Option(min=1, help="Lists to look through: more is better, slower.")] = None,
    neighbours: Annotated[int, typer.Option(min=1, help="Nearest descriptors that each one votes by.")] = 32,
    threshold: Annotated[float, typer.Option(min=0, help="Pixels that an inlier may be off.")] = 1.5,
    descriptor: Annotated[
        str | None, typer.Option(help="The index's descriptor, if its file has moved; another is refused.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A picture of what was found to write.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the index's images, for the picture.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the images that show what a photo shows."""
    if (out is None) != (images is None):
        raise typer.BadParameter("expected both --out and --images, or neither, got one of them")
    from doap.scale import Index, extract_query, search_images

    if out is not None:
        check_writable(out)
    opened = Index(index)
    seen = extract_query(opened, query, descriptor=descriptor)
    found = search_images(
        opened,
        seen,
        top=top,
        verify=verify,
        features=features,
        neighbours=neighbours,
        probes=nprobe,
        threshold=threshold,
    )
    if out is not None and images is not None:
        _draw(query, images, found, out)
    if as_json:
        told = {"query": str(query), "keypoints": len(seen), "found": [dataclasses.asdict(one) for one in found]}
        typer.echo(json.dumps(told | {"out": out and str(out)}))
        return
    for place, one in enumerate(found, start=1):
        typer.echo(f"{place:3}  {_told(one):32}  {one.name}")
    if not found:
        typer.echo("nothing looks like it")
    if out is not None:
        typer.echo(f"look at {out}")


@app.command(epilog="doap index add features --index images.index")
def add(
    features: Annotated[Path, typer.Argument(help="Features, made as those of the index were.")],
    index: Annotated[Path, typer.Option("--index", help="Where to add them.")],
    as_json: AsJson = False,
) -> None:
    """Add images that are new or have changed; those that were removed stay out."""
    from doap.scale.features import FeatureSet
    from doap.scale.index import add_images

    with reported("images", quiet=as_json) as report:
        change = add_images(index, FeatureSet(features), progress=report)
    if as_json:
        typer.echo(json.dumps({"index": str(index), **dataclasses.asdict(change)}))
        return
    typer.echo(
        f"{index}: {change.added:,} images added, {change.replaced:,} replaced, {change.unchanged:,} there before"
    )
    if change.excluded:
        typer.echo(f"  {change.excluded:,} kept out: they were removed from this index")


@app.command(epilog="doap index remove harbour/001.jpg --index images.index")
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Images, by the names that search tells.")],
    index: Annotated[Path, typer.Option("--index", help="Where to remove them.")],
    as_json: AsJson = False,
) -> None:
    """Remove images: they are never found again."""
    from doap.scale.index import remove_images

    change = remove_images(index, names)
    if as_json:
        typer.echo(json.dumps({"index": str(index), **dataclasses.asdict(change)}))
        return
    typer.echo(f"{index}: {change.removed:,} images removed")


@app.command(epilog="doap index info images.index")
def info(index: Folder, as_json: AsJson = False) -> None:
    """Say what an index holds, and what it costs."""
    _show(index, as_json)


@app.command(epilog="doap index verify images.index --features features")
def verify(
    index: Folder,
    features: Annotated[Path | None, typer.Option(help="Also check that the index was made from these.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read all of an index and compare it with its checksums. Exits with 1 if anything is wrong."""
    from doap.scale.features import FeatureSet
    from doap.scale.index import Index

    opened = Index(index)
    opened.verify(FeatureSet(features) if features else None)
    files = len(opened.meta["files"])
    typer.echo(json.dumps({"index": str(index), "files": files}) if as_json else f"{index}: {files} files, all whole")


def _show(path: Path, as_json: bool) -> None:
    from doap.scale.index import Index

    told = Index(path).info()
    if as_json:
        typer.echo(json.dumps({"index": str(path), **dataclasses.asdict(told)}))
        return
    typer.echo(f"{path}: {told.images:,} images, {told.descriptors:,} descriptors, {told.shards} shards")
    typer.echo(f"  {told.rule}")
    if told.removed_images:
        typer.echo(f"  removed: {told.removed_images:,} images with {told.removed_descriptors:,} descriptors")
    size = f"{told.bytes / 1e6:,.1f} MB on disk, {told.memory / 1e6:,.1f} MB in memory"
    typer.echo(f"  {size}; {told.bytes_per_descriptor:,.1f} bytes for each descriptor searched")
    typer.echo(f"  each query descriptor is compared with {told.compared:,} others")


def _draw(query: Path, images: Path, found: list[SearchResult], out: Path) -> None:
    from doap.images import draw_strip, read_grey

    photos = [read_grey(query), *(read_grey(images / one.name) for one in found)]
    captions = [(query.name, "query"), *((one.name, _told(one)) for one in found)]
    write_picture(draw_strip(photos, captions), out)


def _told(one: SearchResult) -> str:
    return f"votes {one.votes:.3f}" if one.inliers is None else f"{one.inliers:,} inliers · votes {one.votes:.3f}"
