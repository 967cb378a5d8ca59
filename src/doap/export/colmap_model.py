"""One ONNX file that COLMAP 4 runs itself: an image in, SIFT's keypoints with doap's descriptors out.

COLMAP has a place for an ALIKED model, which may be any graph with these inputs and outputs:

    image           (1, 3, H, W) float32 in 0…1, padded to multiples of 32 pixels
    max_keypoints   int64
    min_score       float32; every keypoint passes COLMAP's default
    keypoints       (1, K, 2) float32, from −1 at the centre of the first pixel to 1 at that of the last one
    descriptors     (1, K, D) float32 with fixed D; bits are ±1/√D
    scores          (1, K) float32, larger for larger keypoints
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from doap._support.errors import DataError, import_extra
from doap._support.files import OutputLock, atomic_write, make_folder
from doap.descriptor import Descriptor
from doap.export import ExportSummary
from doap.export.onnx import OPSET, write_onnx
from doap.export.sift_graph import (
    SIGMA,
    Graph,
    Value,
    cut_patches,
    detect,
    grey_of,
    orientations,
    scale_space,
)
from doap.images import frames_from_arrays, read_grey
from doap.metrics import unit_vectors

MIN_AGREEMENT = 0.99
"""Minimum mean cosine similarity of the descriptors of the graph and of doap at the same frames."""
_PATCHES_AT_ONCE = 256
_SAMPLE = Path(__file__).parents[1] / "images" / "samples" / "photo.jpg"
_FLOAT, _INT64 = 1, 7


def write_colmap_model(descriptor: Descriptor, out: str | Path) -> ExportSummary:
    """Write a graph that detects SIFT's keypoints and describes them, if it describes a photo as doap does.

    Args:
        descriptor: Descriptor to export; it is not modified.
        out: The file, for example `doap.onnx`.
    """
    out = make_folder(Path(out).parent) / Path(out).name
    onnx = import_extra("onnx", "export")
    with OutputLock(out), tempfile.TemporaryDirectory() as folder:
        network = Path(folder) / "network.onnx"
        write_onnx(descriptor, network)
        model = _build(onnx.load(network), descriptor)
        summary = _verify(model, descriptor, out)
        # COLMAP expects three outputs; the fourth is for the verification.
        del model.graph.output[3:]
        onnx.save(model, network)
        with atomic_write(out) as unfinished:
            shutil.copyfile(network, unfinished)
    return summary


def _build(network: Any, descriptor: Descriptor) -> Any:
    """Return the model; its last output is x, y, σ and angle (K, 4) of the keypoints."""
    from onnx import checker, helper

    g, dim = Graph(), descriptor.dim
    grey = grey_of(g, "image")
    octaves = scale_space(g, grey)
    blobs, limit = detect(g, octaves), g("Reshape", "max_keypoints", [1])
    count = g("Min", g.size(blobs, 0), limit)
    _, largest = g.several(2, "TopK", g("Gather", blobs, 2, axis=1), count, axis=0)
    blobs = g("Gather", blobs, largest)
    row, angle = (g("Slice", one, [0], limit, [0]) for one in orientations(g, octaves, blobs))
    blobs = g("Gather", blobs, row)
    x, y, sigma = (g("Gather", blobs, column, axis=1) for column in range(3))
    frames = [x, y, sigma, angle]
    patches = cut_patches(g, grey, frames, descriptor.patch_size, descriptor.extent)
    described = _describe(g, patches, network, descriptor)
    centres = g("Concat", *(g.column(_relative(g, one, axis)) for one, axis in ((x, 3), (y, 2))), axis=1)
    outputs = {"keypoints": centres, "descriptors": described, "scores": g("Div", sigma, g("Add", sigma, SIGMA))}
    nodes = [helper.make_node("Unsqueeze", [one, g.constant([0])], [name]) for name, one in outputs.items()]
    listed = g("Concat", *map(g.column, frames), axis=1)
    nodes = [*g.nodes, *nodes, helper.make_node("Identity", [listed], ["frames"])]
    shapes: dict[str, list[Any]] = {
        "keypoints": [1, "K", 2],
        "descriptors": [1, "K", dim],
        "scores": [1, "K"],
        "frames": ["K", 4],
    }
    info = helper.make_tensor_value_info
    inputs = [info("image", _FLOAT, [1, 3, "H", "W"]), info("max_keypoints", _INT64, []), info("min_score", _FLOAT, [])]
    graph = helper.make_graph(
        nodes, "doap", inputs, [info(name, _FLOAT, shape) for name, shape in shapes.items()], [*g.constants.values()]
    )
    model = helper.make_model(graph, opset_imports=network.opset_import, ir_version=network.ir_version)
    helper.set_model_props(model, {entry.key: entry.value for entry in network.metadata_props})
    checker.check_model(model)
    return model


def _relative(g: Graph, position: Value, axis: int) -> Value:
    """Return positions in pixels as COLMAP expects them: from −1 to 1 between the outermost pixel centres."""
    last = g("Sub", g.float(g.size("image", axis)), 1.0)
    return g("Sub", g("Div", g("Mul", position, 2.0), last), 1.0)


def _describe(g: Graph, patches: Value, network: Any, descriptor: Descriptor) -> Value:
    """Describe patches (n, S²), some at a time, because a convolution of thousands needs gigabytes: (n, D)."""
    from onnx import compose

    side, count = descriptor.patch_size, g.size(patches, 0)
    # One more than needed, because ONNX Runtime refuses to repeat a body zero times.
    missing = g("Sub", [_PATCHES_AT_ONCE], g("Mod", count, [_PATCHES_AT_ONCE]))
    padded = g("Pad", patches, g("Concat", [0, 0], missing, [0], axis=0))
    parts = g("Reshape", padded, [-1, _PATCHES_AT_ONCE, 1, side, side])
    body = compose.add_prefix_graph(network.graph, "network/")
    # The shapes in the body are known.
    del body.value_info[:]
    for value in (body.input[0], body.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = _PATCHES_AT_ONCE
    described = g("Scan", parts, body=body, num_scan_inputs=1)
    width = descriptor.dim if descriptor.kind == "real" else descriptor.dim // 8
    rows = g("Slice", g("Reshape", described, [-1, width]), [0], count, [0])
    if descriptor.kind == "real":
        return rows
    shifted = g("Div", g("Unsqueeze", g("Cast", rows, to=_INT64), [2]), (2 ** np.arange(7, -1, -1)).reshape(1, 1, 8))
    signs = g("Sub", g("Mul", g.float(g("Mod", shifted, 2)), 2.0), 1.0)
    return g("Reshape", g("Div", signs, descriptor.dim**0.5), [-1, descriptor.dim])


def _verify(model: Any, descriptor: Descriptor, out: Path) -> ExportSummary:
    """Describe the sample photo with the model, and its keypoints with doap; refuse a model that differs."""
    onnxruntime = import_extra("onnxruntime", "onnx")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    grey = read_grey(_SAMPLE)
    image = np.repeat(grey[None, None], 3, axis=1).astype(np.float32) / 255
    inputs = {"image": image, "max_keypoints": np.array(1000), "min_score": np.array(0, np.float32)}
    _, described, _, frames = session.run(None, inputs)
    x, y, sigma, angle = frames.T
    expected = descriptor.describe(grey, frames_from_arrays(np.stack([x, y], 1), 6 * sigma, np.degrees(angle)))
    if descriptor.kind == "binary":
        expected = unit_vectors(expected)
    found = torch.from_numpy(described[0])
    agreement = float(torch.nn.functional.cosine_similarity(found, expected).mean())
    if not agreement >= MIN_AGREEMENT:
        raise DataError(
            f"{out}: expected descriptors that agree with doap's by {MIN_AGREEMENT} or more, got {agreement:.3f}. "
            "Nothing was written. Try other versions of torch and onnxruntime."
        )
    return ExportSummary(out, OPSET, "float32", len(found), float((found - expected).abs().max()), agreement)
