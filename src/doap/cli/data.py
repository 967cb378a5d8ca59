"""`doap data …`: make, check, look at, split and merge patch-group sets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.progress import reported

app = typer.Typer(
    help="Patch-group sets: make them from photos, check them, look at them.",
    epilog="doap data from-images photos/ --out my.patches",
    no_args_is_help=True,
)

PLACES_SHOWN = 30
Out = Annotated[Path, typer.Option("--out", help="The set to make: a folder that does not exist yet.")]
Size = Annotated[int, typer.Option(min=8, help="Side of the patches in pixels.")]
Extent = Annotated[float, typer.Option(min=0.1, help="Side of the patches over what SIFT looks at.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("from-colmap", epilog="doap data from-colmap sparse/0 images/ --database database.db --out my.patches")
def from_colmap(
    model: Annotated[Path, typer.Argument(help="Folder of a COLMAP model: cameras, images, points3D.")],
    images: Annotated[Path, typer.Argument(help="Folder that the model's image names start from.")],
    out: Out,
    database: Annotated[
        Path | None, typer.Option(help="The model's database: scale and orientation of its keypoints.")
    ] = None,
    size: Size = 32,
    extent: Extent = 1.0,
    sequence: Annotated[str | None, typer.Option(help="Name of the place; else the images' folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Turn the tracks of a COLMAP model into groups of patches. Killed? The same command resumes."""
    from doap.data import build_from_colmap

    with reported("points", quiet=as_json) as report:
        build_from_colmap(
            model, images, out, database=database, patch_size=size, extent=extent, scene=sequence, progress=report
        )
    _show(out, as_json)


@app.command("from-images", epilog="doap data from-images photos/ --out my.patches --workers 2")
def from_images(
    folder: Annotated[Path, typer.Argument(help="Photos; a folder inside it is a place.")],
    out: Out,
    ledger: Annotated[
        Path | None, typer.Option(help="CSV with file, place, split, licence…: which photos, and their rights.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split of the ledger.")] = None,
    size: Size = 32,
    extent: Extent = 1.0,
    views: Annotated[int, typer.Option(min=1, help="Made-up views of each photo.")] = 7,
    points: Annotated[int, typer.Option(min=1, help="Keypoints followed in each photo.")] = 500,
    tracks: Annotated[
        bool, typer.Option("--tracks/--no-tracks", help="Whether to reconstruct places: most of the time.")
    ] = True,
    without_tracks: Annotated[
        list[str] | None, typer.Option(help="A place whose photos do not overlap; may be repeated.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the result is the same.")] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Turn plain photos into groups of patches: real tracks where photos overlap, made-up views of each.

    Killed? The same command resumes.
    """
    from doap.data import SyntheticViews, build_from_images

    with reported("units", quiet=as_json) as report:
        build_from_images(
            folder,
            out,
            ledger=ledger,
            split=split,
            patch_size=size,
            extent=extent,
            tracks=tracks,
            views=SyntheticViews(count=views, keypoints=points),
            without_tracks=without_tracks or (),
            workers=workers,
            seed=seed,
            progress=report,
        )
    _show(out, as_json)


@app.command("from-public", epilog="doap data from-public phototour/ --out phototour.patches")
def from_public(
    root: Annotated[Path, typer.Argument(help="PhotoTour, HPatches or RomePatches, as released.")],
    out: Out,
    size: Size = 32,
    as_json: AsJson = False,
) -> None:
    """Store a published set as groups of patches. Killed? The same command resumes."""
    from doap.data import build_from_public

    with reported("units", quiet=as_json) as report:
        build_from_public(root, out, patch_size=size, progress=report)
    _show(out, as_json)


@app.command(epilog="doap data check my.patches")
def check(
    path: Annotated[Path, typer.Argument(help="Any folder: a set, a public benchmark, a COLMAP model, photos.")],
    as_json: AsJson = False,
) -> None:
    """Say what a folder is and what is wrong with it. Exits with 1 if anything is."""
    from doap.data import check_folder

    found = check_folder(path)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found)))
    else:
        typer.echo(f"{found.kind}: {found.summary}")
        for problem in found.problems:
            typer.echo(f"  problem: {problem}")
    raise typer.Exit(1 if found.problems else 0)


@app.command(epilog="doap data preview my.patches --out preview.png")
def preview(
    path: Annotated[Path, typer.Argument(help="A set.")],
    out: Annotated[Path, typer.Option("--out", help="The PNG to write.")],
    groups: Annotated[int, typer.Option(min=1, help="How many groups to draw.")] = 48,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw groups at random, one to a row: each row should show one point of the world."""
    from doap.data import draw_preview

    drawn = draw_preview(path, out, groups=groups, seed=seed)
    typer.echo(json.dumps({"out": str(drawn)}) if as_json else f"look at {drawn}")


@app.command(epilog="doap data split my.patches castle harbour --out two-places.patches")
def split(
    path: Annotated[Path, typer.Argument(help="A set.")],
    sequences: Annotated[list[str], typer.Argument(help="The places to take.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Take some places of a set."""
    from doap.data import split_set

    split_set(path, out, sequences)
    _show(out, as_json, picture=False)


@app.command(epilog="doap data merge one.patches other.patches --out both.patches")
def merge(
    paths: Annotated[list[Path], typer.Argument(help="Sets with patches of one size.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Put several sets into one."""
    from doap.data import merge_sets

    merge_sets(paths, out)
    _show(out, as_json, picture=False)


def _show(out: Path, as_json: bool, *, picture: bool = True) -> None:
    """What a finished set holds, and a picture of it beside its files."""
    from doap.data import check_set, draw_preview

    summary = check_set(out)
    drawn = draw_preview(out, out / "preview.png") if picture else None
    if as_json:
        typer.echo(json.dumps({"out": str(out), "preview": drawn and str(drawn), **dataclasses.asdict(summary)}))
        return
    typer.echo(f"{out}: {summary.patches:,} patches in {summary.groups:,} groups")
    typer.echo(f"  from tracks {summary.from_tracks:,} groups, from made-up views {summary.from_photos:,}")
    largest = sorted(summary.groups_per_scene.items(), key=lambda place: -place[1])
    for name, number in largest[:PLACES_SHOWN]:
        typer.echo(f"  {name:28} {number:>9,} groups")
    if len(largest) > PLACES_SHOWN:
        typer.echo(f"  and {len(largest) - PLACES_SHOWN} smaller places; --json has them all")
    if drawn:
        typer.echo(f"  look at {drawn}")
