"""Options that several commands share, so that each has one name, one help text and one default."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

DESCRIPTOR_HELP = (
    "doap-128, doap-256bit, a baseline such as rootsift, a file (*.safetensors, *.onnx, TFeat's *.params), or "
    "module:function or file.py:function (which imports and runs that code)."
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
Ratio = Annotated[float | None, typer.Option(min=0, max=1, help="Threshold of the ratio test, such as 0.8.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
NetworkPrecision = Annotated[
    Precision, typer.Option(help="auto uses bfloat16 where it is fast and was measured to lose no accuracy.")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
