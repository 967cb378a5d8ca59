"""`doap index …`: search large image collections by their local descriptors."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from doap._support.text import counted
from doap.cli.commands import CommandGroup
from doap.cli.options import (
    AsJson,
    Device,
    IndexEngineOption,
    Uri,
    check_server,
    open_index,
)
from doap.cli.progress import show_progress
from doap.cli.terminal import check_writable, echo, write_picture

if TYPE_CHECKING:
    from doap.collection import SearchResult

app = CommandGroup(
    help="Build, update and query an image index.",
    epilog="doap index search photo.jpg --index images.index",
    no_args_is_help=True,
)

Features = Annotated[str, typer.Argument(help="Folder of features written by `doap extract`; a path or an s3:// URL.")]
Folder = Annotated[Path, typer.Argument(metavar="INDEX", help="Folder of the index.")]
IndexOption = Annotated[str, typer.Option("--index", help="Folder of the index, or its name in Milvus.")]


@app.command(epilog="doap index build features --out images.index")
def build(
    features: Features,
    out: Annotated[str, typer.Option("--out", help="Folder of the new index, or its name in Milvus.")],
    kind: Annotated[
        Literal["flat", "ivf"] | None,
        typer.Option(help="Type of the index.", show_default="by the number of descriptors"),
    ] = None,
    max_keypoints: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of keypoints per image.", show_default="all")
    ] = None,
    engine: IndexEngineOption = "faiss",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Build an index from the features of many images."""
    from doap.collection import FeatureSet, MilvusIndex, build_index

    server = check_server(engine, uri)
    with show_progress("images", quiet=as_json) as progress:
        if server is None:
            build_index(features, out, kind=kind, max_keypoints=max_keypoints, progress=progress)
        else:
            opened = FeatureSet(features)
            built = MilvusIndex.build(server, out, opened, kind=kind, max_keypoints=max_keypoints, progress=progress)
    if server is None:
        _print_info(Path(out), as_json)
    elif as_json:
        echo(json.dumps({"index": out, "uri": server, "descriptors": len(built), "lists": built.lists}))
    else:
        echo(f"{built.name}: {counted(len(built), 'descriptor')}, {counted(built.lists, 'list')}")


@app.command(epilog="doap index vocabulary features --out vocabulary.txt")
def vocabulary(
    features: Features,
    out: Annotated[Path, typer.Option("--out", help="Text file to write.")],
    branching: Annotated[int, typer.Option(min=2, max=20, help="Children per node.")] = 10,
    levels: Annotated[int, typer.Option(min=1, max=10, help="Levels of the tree.")] = 5,
    per_image: Annotated[int, typer.Option(min=1, help="Maximum number of descriptors per image.")] = 500,
    as_json: AsJson = False,
) -> None:
    """Build a vocabulary for DBoW2, as ORB-SLAM2 and ORB-SLAM3 read it, from features of doap-256bit."""
    from doap.collection import build_vocabulary

    with show_progress("images", quiet=as_json) as progress:
        built = build_vocabulary(
            features, out, branching=branching, levels=levels, per_image=per_image, progress=progress
        )
    if as_json:
        echo(json.dumps(dataclasses.asdict(built), default=str))
        return
    echo(f"{out}: {counted(built.words, 'word')} from {built.descriptors:,} descriptors of {built.images:,} images")


@app.command(epilog="doap index search photo.jpg --index images.index")
def search(
    query: Annotated[Path, typer.Argument(help="Image to search for.")],
    index: IndexOption,
    top: Annotated[int, typer.Option(min=1, help="Number of images to return.")] = 10,
    features: Annotated[
        str | None, typer.Option(help="Features of the index: verify the best images geometrically, sort by inliers.")
    ] = None,
    probes: Annotated[
        int | None, typer.Option(min=1, help="Number of inverted lists to search; more is slower and more accurate.")
    ] = None,
    threshold: Annotated[float, typer.Option(min=0, help="Inlier threshold in pixels.")] = 1.5,
    on_disk: Annotated[
        bool, typer.Option("--on-disk", help="Search the index on disk instead of reading it into memory.")
    ] = False,
    descriptor: Annotated[
        str | None, typer.Option(help="Descriptor of the index: required if it is a file or a function.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Image file for a contact sheet of the results.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the indexed images, for --out.")] = None,
    engine: IndexEngineOption = "faiss",
    uri: Uri = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find the images that show the same objects as a query image."""
    if (out is None) != (images is None):
        raise typer.BadParameter("--out and --images require each other.")
    if out is not None:
        check_writable(out)
    from doap.collection import extract_query, find_itself, search_images

    opened = open_index(index, engine, uri, in_memory=not on_disk)
    itself = find_itself(opened, query)
    extracted = extract_query(opened, query, descriptor=descriptor, device=device)
    found = search_images(
        opened, extracted, top=top, features=features, probes=probes, threshold=threshold, exclude=itself
    )
    if out is not None and images is not None:
        _draw(query, images, found, out)
    if as_json:
        values = {"query": str(query), "keypoints": len(extracted), "itself": itself, "out": out and str(out)}
        results = [{**dataclasses.asdict(result), "verified": result.verified} for result in found]
        echo(json.dumps({**values, "found": results}))
        return
    _print_results(found, itself)
    if out is not None:
        echo(f"Wrote {out}")


@app.command(epilog="doap index add features --index images.index")
def add(
    features: Features,
    index: IndexOption,
    engine: IndexEngineOption = "faiss",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Add new and changed images. Images that were removed from the index stay out."""
    from doap.collection import FeatureSet

    opened = open_index(index, engine, uri)
    with show_progress("images", quiet=as_json) as progress:
        change = opened.add(FeatureSet(features), progress=progress)
    if as_json:
        echo(json.dumps({"index": index, **dataclasses.asdict(change)}))
        return
    added = counted(change.added, "image")
    echo(f"{index}: {added} added, {change.replaced:,} replaced, {change.unchanged:,} unchanged")
    if change.excluded:
        echo(f"  {counted(change.excluded, 'image')} not added because of an earlier removal from this index")
    if change.gone:
        echo(f"  {counted(len(change.gone), 'image')} no longer among the features; delete with doap index remove:")
        for name in change.gone:
            echo(f"    {name}")


@app.command(epilog="doap index remove harbour/001.jpg --index images.index")
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of images, as printed by search.")],
    index: IndexOption,
    engine: IndexEngineOption = "faiss",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Remove images and their descriptors for good."""
    change = open_index(index, engine, uri).remove(names)
    if as_json:
        echo(json.dumps({"index": index, **dataclasses.asdict(change)}))
        return
    echo(f"{index}: {counted(change.removed, 'image')} removed")


@app.command("export", epilog="doap index export features --out rows")
def export_features(
    features: Features,
    out: Annotated[Path, typer.Option("--out", help="Folder of Parquet files to create.")],
    as_json: AsJson = False,
) -> None:
    """Write one row per descriptor (image, keypoint, code) as Parquet, for databases and other programs."""
    from doap.collection import export_rows

    with show_progress("images", quiet=as_json) as progress:
        rows = export_rows(features, out, progress=progress)
    echo(json.dumps({"out": str(out), "rows": rows}) if as_json else f"{out}: {counted(rows, 'row')}")


@app.command(epilog="doap index info images.index")
def info(index: Folder, as_json: AsJson = False) -> None:
    """Print the size and type of an index."""
    _print_info(index, as_json)


@app.command("verify", epilog="doap index verify images.index --features features")
def verify_index(
    index: Folder,
    features: Annotated[str | None, typer.Option(help="Also check that the index contains all of these.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare an index with its checksum. Exits with 1 if it is damaged."""
    from doap.collection import Index

    Index(index).verify(features)
    echo(json.dumps({"index": str(index), "intact": True}) if as_json else f"{index}: intact")


def _print_info(path: Path, as_json: bool) -> None:
    from doap.collection import Index

    found = Index(path).info()
    if as_json:
        echo(json.dumps({"index": str(path), **dataclasses.asdict(found)}))
        return
    removed = f", {found.removed:,} removed" if found.removed else ""
    echo(f"{path}: {counted(found.images, 'image')}{removed}, {counted(found.descriptors, 'descriptor')}")
    lists = f"{found.kind}: {found.lists:,} lists, {found.probes:,} searched per query descriptor"
    echo(f"  {lists}" if found.lists else f"  {found.kind}")
    echo(f"  {found.bytes / 1e6:,.1f} MB on disk, {found.memory / 1e6:,.1f} MB in memory")


def _print_results(found: list[SearchResult], itself: str | None) -> None:
    for rank, result in enumerate(found, start=1):
        echo(f"{rank:3}  {_score(result):46}  {result.name}")
    if itself is not None:
        echo(f"The query itself, {itself}, is not listed.")
    if not found:
        echo("No similar image found.")


def _draw(query: Path, images: Path, found: list[SearchResult], out: Path) -> None:
    from doap._support.files import check_inside
    from doap.images import draw_strip, read_colour

    for result in found:
        check_inside(result.name, "the index")
    photos = [read_colour(query), *(read_colour(images / result.name) for result in found)]
    captions = [(query.name, "query"), *((result.name, _score(result)) for result in found)]
    write_picture(draw_strip(photos, captions, [result.verified for result in found]), out)


def _score(result: SearchResult) -> str:
    votes = f"votes {result.votes:.3f}"
    if result.inliers is None:
        return votes
    return f"{'verified' if result.verified else 'not verified'} · {counted(result.inliers, 'inlier')} · {votes}"
