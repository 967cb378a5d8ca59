"""Options that several commands share, so that each has one name, one help text and one default."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from doap.text import counted

DESCRIPTOR_HELP = (
    "doap-128, doap-256bit, doap-fast, a baseline such as rootsift, a file (*.safetensors, *.onnx, TFeat's *.params), "
    "or module:function or file.py:function (which imports and runs that code)."
)
DEFAULT_DESCRIPTOR = "doap-128"


class Precision(str, Enum):
    """Arithmetic of the network."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


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
Ratio = Annotated[float | None, typer.Option(min=0, max=1, help="Threshold of the ratio test, such as 0.8.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
NetworkPrecision = Annotated[
    Precision, typer.Option(help="auto uses bfloat16 where it is fast and was measured to lose no accuracy.")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Views = Annotated[int, typer.Option(min=1, max=1000, help="Synthetic views per photo.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def count_masks(found: int) -> str:
    """Report how many images have a mask."""
    hint = "" if found else "; the mask of a/b.jpg must be named a/b.jpg.png"
    return f"  {counted(found, 'image')} with a mask{hint}"
