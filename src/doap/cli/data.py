"""`doap data …`: build, check, preview, split and merge patch sets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap._support.checks import MAX_PATCH_SIZE
from doap._support.processes import MAX_WORKERS
from doap._support.text import counted
from doap.cli.commands import CommandGroup
from doap.cli.options import AsJson, Seed
from doap.cli.progress import SAME_COMMAND, show_progress
from doap.cli.terminal import echo

if TYPE_CHECKING:
    from doap.data import SetSummary

app = CommandGroup(
    help="Build and inspect patch sets: groups of patches that show the same point, for training and evaluation.",
    epilog="doap data from-images photos/ --out my.patches",
    no_args_is_help=True,
)

SCENES_SHOWN = 30
Out = Annotated[Path, typer.Option("--out", help="Patch set to create: a folder that does not exist yet.")]
Model = Annotated[Path, typer.Argument(help="Folder of a COLMAP model: cameras, images, points3D.")]
ModelImages = Annotated[Path, typer.Argument(help="Folder that the image names in the model are relative to.")]
Scene = Annotated[str | None, typer.Option(help="Name of the scene.", show_default="name of the image folder")]
PatchSize = Annotated[int, typer.Option(min=8, max=MAX_PATCH_SIZE, help="Side of the patches in pixels.")]
Extent = Annotated[float, typer.Option(min=0.1, max=100, help="Patch width relative to SIFT's support.")]


@app.command("from-colmap", epilog="doap data from-colmap sparse/0 images/ --database database.db --out my.patches")
def from_colmap(
    model: Model,
    images: ModelImages,
    out: Out,
    database: Annotated[
        Path | None, typer.Option(help="Database of the model, for the scale and orientation of its keypoints.")
    ] = None,
    patch_size: PatchSize = 32,
    extent: Extent = 1.0,
    scene: Scene = None,
    as_json: AsJson = False,
) -> None:
    """Build a patch set from the tracks of a COLMAP model. Resumable: rerun the same command to continue."""
    from doap.data import build_from_colmap

    with show_progress("points", quiet=as_json, resume=SAME_COMMAND) as progress:
        build_from_colmap(
            model, images, out, database=database, patch_size=patch_size, extent=extent, scene=scene, progress=progress
        )
    _summarise(out, as_json)


@app.command("from-images", epilog="doap data from-images photos/ --out my.patches --workers 2")
def from_images(
    folder: Annotated[Path, typer.Argument(help="Folder of photos; each subfolder is a scene.")],
    out: Out,
    ledger: Annotated[
        Path | None, typer.Option(help="CSV with file, scene, split, licence, …: which photos to use.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the ledger to use.")] = None,
    patch_size: PatchSize = 32,
    extent: Extent = 1.0,
    views: Annotated[int, typer.Option(min=1, max=1000, help="Synthetic views per photo.")] = 7,
    keypoints: Annotated[int, typer.Option(min=1, help="Keypoints to follow per photo.")] = 500,
    tracks: Annotated[
        bool, typer.Option("--tracks/--no-tracks", help="Reconstruct scenes for real tracks (most of the time).")
    ] = True,
    without_tracks: Annotated[list[str] | None, typer.Option(help="Scene not to reconstruct; repeatable.")] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=MAX_WORKERS, help="Number of processes; the result does not depend on it.")
    ] = 1,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Build a patch set from photos: real tracks where photos overlap, and synthetic views of every photo.

    Resumable: rerun the same command to continue.
    """
    from doap.data import SyntheticViews, build_from_images

    with show_progress("units", quiet=as_json, resume=SAME_COMMAND) as progress:
        build_from_images(
            folder,
            out,
            ledger=ledger,
            split=split,
            patch_size=patch_size,
            extent=extent,
            tracks=tracks,
            views=SyntheticViews(count=views, keypoints=keypoints),
            without_tracks=without_tracks or (),
            workers=workers,
            seed=seed,
            progress=progress,
        )
    _summarise(out, as_json)


@app.command("tracks", epilog="doap data tracks sparse/0 images/ --database database.db --out castle.parquet")
def tracks(
    model: Model,
    images: ModelImages,
    out: Annotated[Path, typer.Option("--out", help="Track file to write, such as castle.parquet.")],
    database: Annotated[
        Path, typer.Option(help="Database of the model, for the scale and orientation of its keypoints.")
    ],
    scene: Scene = None,
    folder: Annotated[str, typer.Option(help="Folder of the images in PHOTOS of from-tracks.")] = "",
    as_json: AsJson = False,
) -> None:
    """Write the tracks of a COLMAP model to a small file, from which from-tracks cuts patches of any width."""
    from doap.data import write_track_file

    write_track_file(model, images, out, database=database, scene=scene, folder=folder)
    echo(json.dumps({"out": str(out)}) if as_json else f"Wrote {out}")


@app.command("from-tracks", epilog="doap data from-tracks castle.parquet photos/ --out my.patches --extent 1.5")
def from_tracks(
    sources: Annotated[
        list[Path], typer.Argument(metavar="TRACKS… PHOTOS", help="Track files, and the folder of their photos.")
    ],
    out: Out,
    ledger: Annotated[
        Path | None, typer.Option(help="CSV with file, scene, split, licence, …: stored in the set.")
    ] = None,
    patch_size: PatchSize = 32,
    extent: Extent = 1.0,
    as_json: AsJson = False,
) -> None:
    """Build a patch set from track files. Resumable: rerun the same command to continue."""
    from doap.data import build_from_tracks

    *files, photos = sources
    if not files:
        raise typer.BadParameter("Expected one or more track files and the folder of their photos.")
    with show_progress("scenes", quiet=as_json, resume=SAME_COMMAND) as progress:
        build_from_tracks(files, photos, out, ledger=ledger, patch_size=patch_size, extent=extent, progress=progress)
    _summarise(out, as_json)


@app.command("from-public", epilog="doap data from-public phototour/ --out phototour.patches")
def from_public(
    root: Annotated[Path, typer.Argument(help="Folder of PhotoTour, HPatches or RomePatches, as released.")],
    out: Out,
    patch_size: PatchSize = 32,
    as_json: AsJson = False,
) -> None:
    """Convert a published dataset to a patch set. Resumable: rerun the same command to continue."""
    from doap.data import build_from_public

    with show_progress("units", quiet=as_json, resume=SAME_COMMAND) as progress:
        build_from_public(root, out, patch_size=patch_size, progress=progress)
    _summarise(out, as_json)


@app.command("from-poses", epilog="doap data from-poses poses.csv photos/ --scene taj_mahal --out scenes/")
def from_poses(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="POSES IMAGES…", help="CSV of camera poses and the folder of its images; repeatable."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the scenes: SCENE/images and SCENE/sparse.")],
    scene: Annotated[list[str] | None, typer.Option(help="Scene to build; repeatable.", show_default="all")] = None,
    descriptor: Annotated[
        list[str] | None,
        typer.Option(help="Descriptor of the matches to triangulate; repeatable.", show_default="rootsift"),
    ] = None,
    max_keypoints: Annotated[int, typer.Option(min=8, help="Maximum number of keypoints per image.")] = 4096,
    as_json: AsJson = False,
) -> None:
    """Build scenes for the benchmarks pose and sfm from known camera poses: triangulate points, estimate intrinsics.

    Resumable: rerun the same command to continue.
    """
    if len(sources) % 2:
        raise typer.BadParameter("Expected pairs of a CSV file and a folder of images.")
    from doap.evaluation.known_poses import build_posed_scenes

    with show_progress("image pairs", quiet=as_json, resume=SAME_COMMAND) as progress:
        built = build_posed_scenes(
            list(zip(sources[::2], sources[1::2], strict=True)),
            out,
            scenes=scene or (),
            descriptors=descriptor or ["rootsift"],
            max_keypoints=max_keypoints,
            progress=progress,
        )
    echo(json.dumps({"scenes": [str(path) for path in built]}) if as_json else f"Built {counted(len(built), 'scene')}")


@app.command(epilog="doap data preview my.patches --out preview.png")
def preview(
    path: Annotated[Path, typer.Argument(help="A patch set.")],
    out: Annotated[Path, typer.Option("--out", help="PNG file to write.")],
    groups: Annotated[int, typer.Option(min=1, help="Number of groups to draw.")] = 48,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Check a patch set and draw random groups, one per row: each row should show one point of the scene."""
    from doap.data import check_set, draw_preview

    summary = check_set(path)
    _report(path, summary, draw_preview(path, out, groups=groups, seed=seed), as_json)


@app.command(epilog="doap data split my.patches castle harbour --out two-scenes.patches")
def split(
    path: Annotated[Path, typer.Argument(help="A patch set.")],
    scenes: Annotated[list[str], typer.Argument(help="Names of the scenes to keep.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Write some scenes of a patch set to a new one."""
    from doap.data import check_set, split_set

    split_set(path, out, scenes)
    _report(out, check_set(out), None, as_json)


@app.command(epilog="doap data merge one.patches other.patches --out both.patches")
def merge(
    paths: Annotated[list[Path], typer.Argument(help="Patch sets with the same patch size.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Merge several patch sets into one."""
    from doap.data import check_set, merge_sets

    merge_sets(paths, out)
    _report(out, check_set(out), None, as_json)


def _summarise(out: Path, as_json: bool) -> None:
    """Print the contents of a finished patch set, and draw a preview into its folder."""
    from doap.data import check_set, draw_preview

    _report(out, check_set(out), draw_preview(out, out / "preview.png"), as_json)


def _report(path: Path, summary: SetSummary, preview: Path | None, as_json: bool) -> None:
    if as_json:
        echo(json.dumps({"out": str(path), "preview": preview and str(preview), **dataclasses.asdict(summary)}))
        return
    echo(f"{path}: {counted(summary.patches, 'patch')} in {counted(summary.groups, 'group')}")
    echo(f"  {counted(summary.from_tracks, 'group')} from tracks, {summary.from_photos:,} from synthetic views")
    largest = sorted(summary.groups_per_scene.items(), key=lambda scene: -scene[1])
    for name, number in largest[:SCENES_SHOWN]:
        echo(f"  {name:28} {number:>9,} groups")
    if len(largest) > SCENES_SHOWN:
        echo(f"  and {counted(len(largest) - SCENES_SHOWN, 'smaller scene')}; --json lists them all")
    if preview:
        echo(f"  preview: {preview}")
