"""Names at the edge: what a user types for a descriptor or a detector becomes an object here, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from doap.detectors import Detector

DESCRIPTOR_HELP = (
    "doap-128, doap-256bit, a peer's name, a file (*.safetensors, *.onnx, TFeat's *.params), or a function of patches "
    "in your own code as package.module:function or file.py:function, which is imported and run."
)


def open_detector(name: str) -> Detector:
    """A detector from its name."""
    from doap.detectors import as_detector

    return as_detector(name)
