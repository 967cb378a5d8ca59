"""The formats that later versions must read: how a sample is written, and its content as plain values.

`scripts/golden_files.py` writes the samples to `tests/golden`; `tests/test_golden_files.py` reads them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import doap
from doap import descriptor
from doap.collection import features
from doap.collection.features import FeatureSet
from doap.collection.index import Index, folder
from doap.data import writer
from doap.data.builders import from_tracks
from doap.data.builders.from_tracks import read_track_file
from doap.data.builders.tracks import read_tracks
from doap.data.store import check_set, open_set
from doap.descriptor import Descriptor
from doap.evaluation.result import FORMAT as RESULT_FORMAT
from doap.evaluation.result import read_results
from doap.export import hloc
from doap.export.onnx import OPSET, write_onnx
from doap.training.log import read_log
from oracles import file_samples

ROOT = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Golden:
    """A format.

    Attributes:
        version: Version that doap writes today.
        write: Writes a sample into an empty folder.
        files: Patterns of the files of the sample to keep.
        content: Reads the kept files with doap; arrays and tensors are allowed as values.
    """

    version: str
    write: Callable[[Path], Any]
    files: tuple[str, ...]
    content: Callable[[Path], Any]


def plain(value: Any) -> Any:
    """Convert a value to JSON. Arrays and tensors become type, shape and SHA-256 of their bytes."""
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        checksum = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"type": str(value.dtype), "shape": list(value.shape), "sha256": checksum}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def small_descriptor() -> Descriptor:
    torch.manual_seed(0)
    return Descriptor.build("l2net", dim=8, extent=1.5, width=0.25)


def golden_patches() -> torch.Tensor:
    """Return (4, 1, 32, 32) patches of random 4×4 blocks."""
    cells = np.random.default_rng(19).random((4, 1, 8, 8), np.float32)
    return torch.from_numpy(cells.repeat(4, 2).repeat(4, 3))


def describe(path: Path) -> list[list[float]]:
    """Return descriptors of `golden_patches`, which may differ between machines by rounding."""
    described = doap.load(path, device="cpu", precision="float32").describe_patches(golden_patches())
    return [[round(value, 6) for value in row] for row in described.tolist()]


def descriptor_content(root: Path) -> Any:
    loaded = Descriptor.load(root / "weights.safetensors")
    return {"spec": loaded.spec.model_dump(), "metadata": loaded.metadata, "weights": loaded.network.state_dict()}


def onnx_content(root: Path) -> Any:
    loaded = doap.load(root / "weights.onnx")
    return {"kind": loaded.kind, "dim": loaded.dim, "patch_size": loaded.patch_size, "extent": loaded.extent}


def set_content(root: Path) -> Any:
    patch_set = open_set(root / "set")
    groups = np.arange(len(patch_set))
    return {
        "summary": check_set(root / "set"),
        "ledger": patch_set.meta["ledger"],
        "extent": patch_set.extent,
        "patches": patch_set.gather(patch_set.members(groups)),
        "count": patch_set.count,
        "scenes": [patch_set.scene_names[number] for number in patch_set.scene_ids],
        "sources": [patch_set.source_names[number] for number in patch_set.source_ids],
        "ignored": patch_set.ignored(groups),
    }


def index_content(root: Path) -> Any:
    index = Index(root / "index")
    index.verify()
    queries = np.eye(16, dtype=np.float32)[:3]
    _, ids = index.search(queries, 4)
    return {"images": index.images, "ids": ids}


def hloc_content(root: Path) -> Any:
    import h5py

    content: dict[str, Any] = {}
    for name in ("f.h5", "m.h5"):
        with h5py.File(root / name) as file:
            arrays = {key: file[key][()] for key in sorted(_datasets(file))}
        content[name] = {"line": hloc._read_line(root / name).decode(), "arrays": arrays}
    return content


def _datasets(file: Any) -> list[str]:
    import h5py

    found: list[str] = []
    file.visititems(lambda key, item: found.append(key) if isinstance(item, h5py.Dataset) else None)
    return found


def result_content(root: Path) -> Any:
    return {"results": read_results(root / "results" / "oxford.json")}


def write_weights(root: Path) -> None:
    small_descriptor().save(root / "weights.safetensors", note="golden")


GOLDEN: dict[str, Golden] = {
    "descriptor": Golden(str(descriptor.FORMAT), write_weights, ("weights.safetensors",), descriptor_content),
    "onnx": Golden(
        f"opset-{OPSET}",
        lambda root: write_onnx(small_descriptor(), root / "weights.onnx"),
        ("weights.onnx",),
        onnx_content,
    ),
    "patch-set": Golden(str(writer.FORMAT), file_samples.write_set, ("set/*",), set_content),
    "tracks": Golden(
        str(from_tracks.FORMAT),
        file_samples.write_tracks,
        ("a.parquet",),
        lambda root: read_track_file(root / "a.parquet"),
    ),
    "feature-set": Golden(
        str(features.FORMAT),
        file_samples.write_features,
        ("features/*",),
        lambda root: {
            "extractor": FeatureSet(root / "features").extractor,
            "images": list(FeatureSet(root / "features").stream()),
        },
    ),
    "index": Golden(str(folder.FORMAT), file_samples.write_index, ("index/*",), index_content),
    "hloc": Golden(str(hloc.FORMAT), file_samples.write_hloc, ("f.h5", "m.h5"), hloc_content),
    "result": Golden(
        RESULT_FORMAT.rsplit(" ")[-1],
        file_samples.write_result_files,
        ("results/*.json",),
        result_content,
    ),
    "training-log": Golden("1", file_samples.write_run, ("log.jsonl",), lambda root: read_log(root / "log.jsonl")),
    "colmap": Golden(
        "4",
        file_samples.write_model,
        ("sparse/*.bin", "database.db"),
        lambda root: read_tracks(root / "sparse", root / "database.db"),
    ),
}
