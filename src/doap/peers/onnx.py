"""Any descriptor of patches that was exported as ONNX."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from doap.errors import DataError, MissingExtra
from doap.peers.describer import FunctionDescriber, from_function


def onnx_describer(path: str | Path) -> FunctionDescriber:
    """A descriptor from an ONNX file, run by ONNX Runtime on the CPU.

    Args:
        path: of a graph with one input, (N, 1, S, S) float32 in 0…1 with N left open, whose first output is (N, D)
            floats, or (N, D/8) uint8 for bits. S and D are read from it.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx") from error
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: expected an ONNX file, got nothing there; check the path")
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    # It has a dozen kinds of errors, and they have no other base.
    except Exception as error:
        raise DataError(f"{path}: expected an ONNX file, got a damaged or foreign one ({error})") from error
    inputs = [(given.name, given.shape, given.type) for given in session.get_inputs()]
    match inputs:
        case [(name, [None | str(), 1, int(size), int(width)], "tensor(float)")] if size == width:
            pass
        case _:
            told = ", ".join(f"{name} {shape} {kind}" for name, shape, kind in inputs)
            raise DataError(
                f"{path}: expected one input (N, 1, S, S) of float32 with N left open, got {told}; "
                "export it with a dynamic first axis"
            )

    def describe(patches: Tensor) -> Tensor:
        described = session.run(None, {name: patches.float().cpu().numpy()})[0]
        return torch.from_numpy(described)

    return from_function(describe, size, path.stem)
