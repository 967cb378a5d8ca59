"""`doap extract IMAGES --out FILE`: the features of a folder of images."""

from __future__ import annotations

import hashlib
import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.names import DESCRIPTOR_HELP, open_descriptor, open_detector
from doap.cli.progress import reported


class Format(str, Enum):
    """What the features are written as."""

    hloc = "hloc"


def extract(
    images: Annotated[Path, typer.Argument(help="Folder of images, at any depth.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write; images that it has already are skipped.")],
    file_format: Annotated[Format, typer.Option("--format", help="hloc: one HDF5 file.")],  # noqa: ARG001 - one so far
    descriptor: Annotated[str, typer.Option(help=DESCRIPTOR_HELP)] = "rootsift",
    detector: Annotated[str, typer.Option(help="Where to look.")] = "sift",
    most: Annotated[int, typer.Option(min=1, help="Keypoints of an image, the strongest.")] = 2048,
    pairs: Annotated[Path | None, typer.Option(help="Two names to a line: match these images too.")] = None,
    matches: Annotated[Path | None, typer.Option(help="The file to write the matches of --pairs to.")] = None,
    ratio: Annotated[float | None, typer.Option(min=0, max=1, help="Ratio test of the matches.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find and describe the keypoints of all images of a folder. Killed? The same command resumes."""
    if (pairs is None) != (matches is None):
        raise typer.BadParameter("expected both --pairs and --matches, or neither, got one of them")
    from doap.export import hloc
    from doap.export.pairs import listed
    from doap.images import list_images

    names = [path.relative_to(images).as_posix() for path in list_images(images)]
    wanted = listed(pairs)(names) if pairs else []
    describer, finder = open_descriptor(descriptor), open_detector(detector)
    with reported("images", quiet=as_json) as report:
        done = hloc.extract_features(
            images,
            out,
            describer,
            descriptor_name=_identity(descriptor),
            detector=finder,
            most=most,
            report=report,
        )
        matched = None
        if matches is not None:
            matched = hloc.match_features(out, wanted, matches, ratio=ratio, report=report)
    for reason in done.skipped.values():
        typer.echo(f"left out: {reason}", err=True)
    told = {"out": str(out), "written": done.written, "kept": done.kept, "skipped": done.skipped}
    told |= {"matches": matches and str(matches), "pairs": matched.written + matched.kept if matched else None}
    if as_json:
        typer.echo(json.dumps(told))
        return
    typer.echo(f"{out}: {done.written:,} images added, {done.kept:,} there before, {len(done.skipped):,} left out")
    if matches is not None:
        typer.echo(f"{matches}: {told['pairs']:,} pairs")


def _identity(descriptor: str) -> str:
    """A name, or for a file its checksum: weights that were trained on are others."""
    path = Path(descriptor)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else descriptor
