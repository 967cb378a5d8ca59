"""`doap extract IMAGES --out FEATURES`: extract the features of a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from doap._support.processes import MAX_WORKERS
from doap.cli.options import (
    DEFAULT_DESCRIPTOR,
    AsJson,
    Descriptor,
    Detector,
    Device,
    Masks,
    MaxKeypoints,
    NetworkPrecision,
    Tile,
    Verify,
    report_extraction,
)
from doap.cli.progress import SAME_COMMAND, show_progress


def extract(
    images: Annotated[str, typer.Argument(help="Folder or URL of the images, searched recursively.")],
    out: Annotated[str, typer.Option("--out", help="Folder or URL of the features.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 2048,
    masks: Masks = None,
    tile: Tile = None,
    verify: Verify = False,
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="This machine, or Ray on one machine or a cluster.")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_WORKERS, help="Number of worker processes.", show_default="number of CPU cores"),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to connect to, such as auto or ray://host:10001.")
    ] = None,
    device: Device = "auto",
    precision: NetworkPrecision = "auto",
    as_json: AsJson = False,
) -> None:
    """Extract the features of all images in a folder. Resumable: rerun the same command to continue."""
    if address and engine != "ray":
        raise typer.BadParameter("--address requires --engine ray.")
    if Path(out).suffix in (".h5", ".hdf5"):
        raise typer.BadParameter(f"Expected a folder, got {out}. Use `doap hloc` to write HDF5.", param_hint="--out")
    import doap
    from doap._support.processes import tune_allocator

    tune_allocator()
    with show_progress("images", quiet=as_json, resume=SAME_COMMAND) as progress:
        done = doap.extract_folder(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            masks=masks,
            tile=tile,
            verify=verify,
            engine=engine,
            workers=workers,
            address=address,
            device=device,
            precision=precision,
            progress=progress,
        )
    report_extraction(done, done.out, as_json, images)
