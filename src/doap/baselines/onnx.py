"""Descriptors in ONNX files, written by `doap export` or by other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doap._support.checks import check_finite
from doap._support.errors import ArgumentError, DataError, DoapError, ShapeError, import_extra
from doap._support.files import sha256
from doap.describer import DEFAULT_RATIO, FunctionDescriber

PREFIX = "doap."
"""Prefix of the names of doap's metadata in an ONNX file."""


class OnnxDescriber(FunctionDescriber):
    """A descriptor in an ONNX file, run by ONNX Runtime on the CPU with as many threads as torch uses.

    It is pickled as its path, so another process opens the file again.

    Args:
        path: ONNX file, with all weights in it, of a graph with one input, (N, 1, S, S) float32 in
            0…1 with dynamic N, whose first output is (N, D) floats, or (N, D/8) uint8 for bits. S, D
            and the kind are read from the graph, and extent and ratio from the metadata of `doap export`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._session = _open(self.path)
        self._input, size = _input_of(self._session, self.path)
        metadata: dict[str, Any] = self._session.get_modelmeta().custom_metadata_map
        extent, ratio = metadata.get(f"{PREFIX}extent", 1.0), metadata.get(f"{PREFIX}ratio", DEFAULT_RATIO)
        try:
            super().__init__(self._run, size, self.path.stem, extent, ratio)
        except (ArgumentError, ShapeError) as error:
            raise DataError(f"{self.path}: {error}") from error

    def __reduce__(self) -> tuple[type[OnnxDescriber], tuple[Path]]:
        return OnnxDescriber, (self.path,)

    def fingerprint(self) -> str:
        """Return the checksum of the file."""
        return sha256(self.path)

    def _run(self, patches: Tensor) -> Tensor:
        described = torch.from_numpy(self._session.run(None, {self._input: patches.float().cpu().numpy()})[0])
        check_finite(described, name=f"descriptors of {self.path}", remedy="Export the network again.")
        return described


def _open(path: Path) -> Any:
    """Open a file with ONNX Runtime."""
    onnx, onnxruntime = import_extra("onnx", "onnx"), import_extra("onnxruntime", "onnx")
    if not path.is_file():
        raise DataError(f"{path}: no such ONNX file. Check the path.")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # It would print what it raises.
    options.log_severity_level = 4
    try:
        model = onnx.load(path, load_external_data=False)
        if _has_external_data(model):
            raise DataError(
                f"{path}: expected one file with all weights, got weights stored in other files. doap does not open "
                "files that a file names. Export the model as one file (torch.onnx.export: external_data=False)."
            )
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except DoapError:
        raise
    # ONNX Runtime's exceptions have no other common base.
    except Exception as error:
        raise DataError(f"{path}: not an ONNX file, or a damaged one ({error}).") from error


def _has_external_data(message: Any) -> bool:
    """Return whether a tensor anywhere in a message of onnx.proto is stored in another file, or at an address."""
    for field, value in message.ListFields():
        if field.full_name == "onnx.TensorProto.external_data":
            return True
        if field.full_name == "onnx.TensorProto.data_location" and value:
            return True
        parts = [value] if hasattr(value, "ListFields") else value
        if field.message_type is not None and any(map(_has_external_data, parts)):
            return True
    return False


def _input_of(session: Any, path: Path) -> tuple[str, int]:
    """Return the name of the input and S."""
    inputs = [(given.name, given.shape, given.type) for given in session.get_inputs()]
    match inputs:
        case [(name, [None | str(), 1, int(size), int(width)], "tensor(float)")] if size == width:
            return name, size
    found = ", ".join(f"{name} {shape} {kind}" for name, shape, kind in inputs)
    raise DataError(
        f"{path}: expected one input (N, 1, S, S) of float32 with dynamic N, got {found}. "
        "Export it with a dynamic first axis."
    )
