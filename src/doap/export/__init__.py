"""Deliver descriptors, features and matches to other software: ONNX, COLMAP, hloc, OpenSfM and OpenCV.

To add an export format of descriptors, write a function with the signature of `Exporter` and add it to `EXPORTERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from doap._support.checks import check_choice
from doap._support.errors import ArgumentError

if TYPE_CHECKING:
    from doap.data.store import PatchSet
    from doap.descriptor import Descriptor

__all__ = ["EXPORTERS", "ExportSummary", "Exporter", "export_descriptor"]


@dataclass(frozen=True)
class ExportSummary:
    """An exported file, and how well it agrees with the descriptor.

    Attributes:
        out: The file.
        opset: Version of the ONNX operators; None for other formats.
        precision: Arithmetic of the convolutions: `float32` or `int8`.
        patches: Number of patches described with both.
        max_difference: Largest difference of a value, or the fraction of bits that differ.
        agreement: Mean cosine similarity of both descriptors of a patch, or the fraction of equal bits.
    """

    out: Path
    opset: int | None
    precision: str
    patches: int
    max_difference: float
    agreement: float


Exporter = Callable[["Descriptor", Path, "PatchSet | None"], ExportSummary]
"""Writes a descriptor to a file; the patches, if given, calibrate a quantised file."""


def _export_onnx(descriptor: Descriptor, out: Path, calibration: PatchSet | None) -> ExportSummary:
    from doap.export.onnx import write_onnx

    return write_onnx(descriptor, out, calibration=calibration)


def _export_colmap(descriptor: Descriptor, out: Path, calibration: PatchSet | None) -> ExportSummary:
    from doap.export.colmap_model import write_colmap_model

    if calibration is not None:
        raise ArgumentError("calibration: expected None, because COLMAP's file has no int8. Omit it.")
    return write_colmap_model(descriptor, out)


EXPORTERS: dict[str, Exporter] = {"onnx": _export_onnx, "colmap": _export_colmap}
"""Export formats by name."""


def export_descriptor(
    descriptor: str | Path | Descriptor,
    out: str | Path,
    *,
    to: str = "onnx",
    calibration: str | Path | PatchSet | None = None,
) -> ExportSummary:
    """Export a descriptor to another format and verify that its output matches PyTorch.

    >>> import doap
    >>> doap.export_descriptor("doap-128", "doap-128.onnx").max_difference < 1e-4  # doctest: +SKIP
    True

    Args:
        descriptor: Shipped name, `*.safetensors` file or `Descriptor`.
        out: File to write, for example `my.onnx`. Nothing is written if the verification fails.
        to: Format, a key of `EXPORTERS`.
        calibration: Patch-group set that calibrates int8 convolutions; None keeps float32.
    """
    from doap.data.store import open_set
    from doap.descriptor import Descriptor

    check_choice(to, tuple(EXPORTERS), name="to")
    network = Descriptor.load(descriptor) if isinstance(descriptor, str | Path) else descriptor
    patches = open_set(calibration) if isinstance(calibration, str | Path) else calibration
    return EXPORTERS[to](network, Path(out), patches)
