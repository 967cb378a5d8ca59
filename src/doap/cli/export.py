"""`doap export DESCRIPTOR --to onnx --out FILE`: export a descriptor to another runtime."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from doap.cli.options import AsJson
from doap.cli.terminal import echo

MEANING = {
    "float32": "float32: as accurate as PyTorch. --int8 PATCHES writes about a quarter of the size, for a small loss.",
    "int8": "int8: 8-bit convolutions, input and output as in float32. Smaller, faster on most CPUs, and slightly less "
    "accurate: compare both files with doap eval.",
}
"""What the precision of an exported file means."""


def export(
    descriptor: Annotated[str, typer.Argument(help="doap-128, doap-256bit, doap-fast, or a *.safetensors file.")],
    out: Annotated[Path, typer.Option("--out", help="File to write, such as my.onnx.")],
    to: Annotated[str, typer.Option(help="Format.")] = "onnx",
    int8: Annotated[
        Path | None, typer.Option(help="Quantise convolutions to int8, calibrated on this patch set.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export a descriptor to ONNX and verify that its outputs match PyTorch."""
    import doap

    written = doap.export_descriptor(descriptor, out, to=to, calibration=int8)
    if as_json:
        echo(json.dumps({**dataclasses.asdict(written), "out": str(out), "format": to}))
        return
    echo(f"{out}: {written.precision}, opset {written.opset}, {out.stat().st_size / 1e6:.1f} MB")
    echo(
        f"  parity with PyTorch on {written.patches} patches: agreement {written.agreement:.6f}, "
        f"largest difference {written.max_difference:.2g}"
    )
    echo(f"  {MEANING[written.precision]}")
    echo(f"  try it: doap match left.jpg right.jpg --descriptor {out}")
