"""Descriptors in ONNX files, written by `doap export` or by other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doap.checks import check_finite
from doap.describer import FunctionDescriber
from doap.errors import ArgumentError, DataError, DoapError, ShapeError, import_extra
from doap.files import sha256

PREFIX = "doap."
"""Prefix of the names of doap's metadata in an ONNX file."""

_PARTS = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        5: "TensorProto",
        6: "GraphProto",
        10: "TensorProto",
        11: "GraphProto",
        22: "SparseTensorProto",
        23: "SparseTensorProto",
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
}
"""The messages of onnx.proto that contain tensors: their fields by number, and the messages in these."""
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
"""Fields of a tensor: the file that it is stored in, and whether there is one."""


class OnnxDescriber(FunctionDescriber):
    """A descriptor in an ONNX file, run by ONNX Runtime on the CPU with as many threads as torch uses.

    It is pickled as its path, so another process opens the file again.

    Args:
        path: ONNX file, with all weights in it, of a graph with one input, (N, 1, S, S) float32 in
            0…1 with dynamic N, whose first output is (N, D) floats, or (N, D/8) uint8 for bits. S, D
            and the kind are read from the graph.

    Attributes:
        metadata: Metadata written by `doap export` as text: `extent`, `network`, `licences`, …;
            empty for other files.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._session = _open(self.path)
        self._input, size = _input_of(self._session, self.path)
        stored = self._session.get_modelmeta().custom_metadata_map
        self.metadata = {key.removeprefix(PREFIX): stored[key] for key in sorted(stored) if key.startswith(PREFIX)}
        extent: Any = self.metadata.get("extent", 1.0)
        try:
            super().__init__(self._run, size, self.path.stem, extent)
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
    onnxruntime = import_extra("onnxruntime", "onnx")
    if not path.is_file():
        raise DataError(f"{path}: no such ONNX file. Check the path.")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # It would print what it raises.
    options.log_severity_level = 4
    try:
        if _has_external_data(path.read_bytes()):
            raise DataError(
                f"{path}: expected one file with all weights, got weights stored in other files. doap does not open "
                "files that a file names. Export the model as one file (torch.onnx.export: external_data=False)."
            )
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except DoapError:
        raise
    # ONNX Runtime's exceptions have no other common base.
    except Exception as error:
        raise DataError(f"{path}: not an ONNX file, or a damaged one ({error}).") from error


def _has_external_data(model: bytes) -> bool:
    """Return whether a tensor of a model is stored in another file, or at an address in memory.

    ONNX Runtime opens these files without asking, and its earlier versions open them anywhere on the disk. The package
    onnx, which could check it, is not required to describe patches.
    """
    todo = [("ModelProto", memoryview(model))]
    while todo:
        message, content = todo.pop()
        for number, value in _fields(content):
            if message == "TensorProto" and (number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value)):
                return True
            part = _PARTS.get(message, {}).get(number)
            if part is not None and isinstance(value, memoryview):
                todo.append((part, value))
    return False


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the numbers and values of all fields of a protobuf message: integers, or bytes of anything else."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        if key >> 32:
            raise ValueError("a field number of more than 29 bits")
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire_type == 2:
            size, position = _varint(message, position)
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"a field of unknown type {wire_type}")
        position += size
        if position > len(message):
            raise ValueError("truncated")
        yield number, message[position - size : position]


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """Read an integer with 7 bits per byte, and return the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("an integer of more than 10 bytes")


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
