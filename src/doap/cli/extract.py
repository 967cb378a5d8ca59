"""`doap extract IMAGES --out FEATURES`: the features of a folder of images."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.names import DESCRIPTOR_HELP
from doap.cli.progress import reported


class Format(str, Enum):
    """What the features are written as."""

    parquet = "parquet"
    hloc = "hloc"


class Engine(str, Enum):
    """What does the work."""

    local = "local"
    ray = "ray"


class Stored(str, Enum):
    """What real descriptors are written as."""

    float32 = "float32"
    float16 = "float16"
    uint8 = "uint8"


def extract(
    images: Annotated[Path, typer.Argument(help="Folder of images, at any depth.")],
    out: Annotated[Path, typer.Option("--out", help="FEATURES, a folder, or hloc's file; what it has is kept.")],
    file_format: Annotated[
        Format | None,
        typer.Option("--format", help="parquet: a folder, for any number of images; hloc: one file."),
    ] = None,
    descriptor: Annotated[str, typer.Option(help=DESCRIPTOR_HELP)] = "doap-128",
    detector: Annotated[
        str | None, typer.Option(help="Where to look; if not given, sift or the descriptor's own.", show_default=False)
    ] = None,
    max_keypoints: Annotated[int, typer.Option(min=1, help="Keypoints of an image, the strongest.")] = 2048,
    stored: Annotated[Stored | None, typer.Option(help="parquet: how real descriptors are written; float16.")] = None,
    engine: Annotated[Engine, typer.Option(help="parquet: this machine, or Ray, here or on a cluster.")] = Engine.local,
    workers: Annotated[int | None, typer.Option(min=1, help="parquet: processes; as many as processors.")] = None,
    address: Annotated[str | None, typer.Option(help="ray: a cluster, such as auto or ray://host:10001.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="hloc: two names to a line: match these images too.")] = None,
    matches: Annotated[Path | None, typer.Option(help="hloc: the file to write the matches of --pairs to.")] = None,
    ratio: Annotated[float | None, typer.Option(min=0, max=1, help="hloc: ratio test of the matches.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find and describe the keypoints of all images of a folder. Interrupted or killed? The same command resumes."""
    if file_format is None and out.suffix in (".h5", ".hdf5"):
        raise typer.BadParameter(f"expected a folder, or --format hloc for a file, got {out}", param_hint="--out")
    if file_format is Format.hloc:
        if engine is Engine.ray or workers or address or stored:
            raise typer.BadParameter("expected --engine, --workers, --address and --stored with --format parquet only")
        _extract_to_hloc(images, out, descriptor, detector, max_keypoints, pairs, matches, ratio, as_json)
        return
    if pairs or matches or ratio is not None:
        raise typer.BadParameter("expected --pairs, --matches and --ratio with --format hloc only")
    if address and engine is not Engine.ray:
        raise typer.BadParameter("expected --address with --engine ray only")
    from doap.processes import tune_allocator
    from doap.scale import extract_folder

    tune_allocator()
    with reported("images", quiet=as_json) as report:
        done = extract_folder(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            stored=stored.value if stored else None,
            engine=engine.value,
            workers=workers,
            address=address,
            progress=report,
        )
    for reason in done.skipped.values():
        typer.echo(f"left out: {reason}", err=True)
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(done), "out": str(out)}))
        return
    typer.echo(f"{out}: {done.extracted:,} images added, {done.reused:,} there before, {len(done.skipped):,} left out")
    if done.removed:
        typer.echo(f"  {done.removed:,} are no longer in {images} and not in the features either")
    if done.extracted:
        typer.echo(f"  {done.images_per_second:,.1f} images/s")


def _extract_to_hloc(
    images: Path,
    out: Path,
    descriptor: str,
    detector: str | None,
    max_keypoints: int,
    pairs: Path | None,
    matches: Path | None,
    ratio: float | None,
    as_json: bool,
) -> None:
    if (pairs is None) != (matches is None):
        raise typer.BadParameter("expected both --pairs and --matches, or neither, got one of them")
    from doap.export.hloc import write_hloc

    with reported("images", quiet=as_json) as report:
        done = write_hloc(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            pairs=pairs,
            matches=matches,
            ratio=ratio,
            progress=report,
        )
    for reason in done.skipped.values():
        typer.echo(f"left out: {reason}", err=True)
    if as_json:
        paths = {"out": str(out), "matches": matches and str(matches)}
        typer.echo(json.dumps({**dataclasses.asdict(done), **paths}))
        return
    typer.echo(f"{out}: {done.extracted:,} images added, {done.reused:,} there before, {len(done.skipped):,} left out")
    if matches is not None:
        typer.echo(f"{matches}: {done.pairs:,} pairs")
