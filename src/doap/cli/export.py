"""`doap export DESCRIPTOR --to onnx --out FILE`."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    """What to write."""

    onnx = "onnx"


def export(
    descriptor: Annotated[str, typer.Argument(help="doap-128, doap-256bit, or a *.safetensors file.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write, such as my.onnx.")],
    to: Annotated[Format, typer.Option(help="Its format.")] = Format.onnx,
    int8: Annotated[
        Path | None,
        typer.Option(help="Convolutions in int8, calibrated with this patch-group set. Judge it with `doap eval`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a descriptor for other runtimes, as one file, if they make the same of patches as doap does."""
    from doap.export import export_descriptor

    written = export_descriptor(descriptor, out, to=to.value, calibration=int8)
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(written), "out": str(out), "format": to.value}))
        return
    typer.echo(f"{out}: {written.precision}, opset {written.opset}, {out.stat().st_size / 1e6:.1f} MB")
    typer.echo(
        f"  {written.patches} patches described by both: agreement {written.agreement:.6f}, "
        f"largest difference {written.max_difference:.2g}"
    )
    typer.echo(f"  try it: doap match left.jpg right.jpg --descriptor {out}")
