"""Options that several commands share, so that each has one name, one help text and one default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from doap._support.text import counted
from doap.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from doap.collection import DescriptorIndex

DESCRIPTOR_HELP = (
    "doap-128, doap-256bit, doap-fast, a baseline such as rootsift, a file (*.safetensors, *.onnx), "
    "or module:function or file.py:function (which imports and runs that code)."
)
DEFAULT_DESCRIPTOR = "doap-128"


Descriptor = Annotated[str, typer.Option(help=DESCRIPTOR_HELP)]
Detector = Annotated[str | None, typer.Option(help="Keypoint detector.", show_default="sift, or the descriptor's own")]
MaxKeypoints = Annotated[int, typer.Option(min=1, help="Maximum number of keypoints per image.")]
Masks = Annotated[
    str | None,
    typer.Option(help="Folder of masks, zero where to ignore an image: a/b.jpg.png for a/b.jpg."),
]
Tile = Annotated[
    int | None,
    typer.Option(
        min=512,
        help="Side of tiles for large images, such as 2048; without it, they are downscaled to 3,200 pixels.",
    ),
]
Verify = Annotated[bool, typer.Option("--verify", help="Find changed images by their checksums.")]
Ratio = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Threshold of the ratio test; 1 omits it.", show_default="the descriptor's own"),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
NetworkPrecision = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option(help="auto uses bfloat16 where it is fast and was measured to lose no accuracy."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
IndexEngineOption = Annotated[
    Literal["faiss", "milvus"],
    typer.Option("--engine", help="A folder of this machine (faiss), or a server (milvus) at --uri."),
]
Uri = Annotated[str | None, typer.Option(help="Address of the Milvus server, such as http://host:19530.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def check_server(engine: str, uri: str | None) -> str | None:
    """Return the address of the server; None for FAISS."""
    if (engine == "milvus") != (uri is not None):
        raise typer.BadParameter("--engine milvus and --uri require each other.")
    return uri


def open_index(index: str, engine: str, uri: str | None, *, in_memory: bool = True) -> DescriptorIndex:
    """Open an index in a folder or on a server."""
    from doap.collection import Index, MilvusIndex

    server = check_server(engine, uri)
    return Index(index, in_memory=in_memory) if server is None else MilvusIndex(server, index)


def report_extraction(done: Any, out: object, as_json: bool, images: str | None = None) -> None:
    """Print the images that were skipped, and the numbers of the others; or a summary as one JSON object."""
    for reason in done.skipped.values():
        echo(f"skipped: {reason}", err=True)
    if as_json:
        echo_json(done)
        return
    extracted = counted(done.extracted, "image")
    echo(f"{out}: {extracted} extracted, {done.reused:,} unchanged, {len(done.skipped):,} skipped")
    if done.masks is not None:
        echo(count_masks(done.masks))
    if images is not None and done.removed:
        echo(f"  {counted(done.removed, 'image')} removed because {images} no longer contains them")
    if images is not None and done.extracted:
        echo(f"  {done.images_per_second:,.1f} images/s")


def count_masks(found: int) -> str:
    """Report how many images have a mask."""
    hint = "" if found else "; the mask of a/b.jpg must be named a/b.jpg.png"
    return f"  {counted(found, 'image')} with a mask{hint}"
