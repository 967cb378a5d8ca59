"""The commands that write files: small inputs, arguments, and readers of their outputs.

Each command runs in a folder of its own and takes a second or less. `benchmarks/faults.py` disturbs them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
from safetensors.torch import load_file

import doap
from doap._support.files import sha256
from doap.collection import FeatureSet, Index, build_index
from doap.data.builders.from_tracks import read_track_file, write_track_file
from doap.descriptor import Descriptor
from oracles.coded_patches import write_units
from oracles.colmap_database import content
from oracles.photos import write_photo
from oracles.plane_scene import write_scene

PREVIEW = "preview.png"
"""Picture of a finished patch set; `doap data preview` draws it again."""
IMAGES = 6
"""Number of generated images."""
RECIPE = """
[schedule]
steps = 6
[data]
batch_size = 16
[network]
name = "fast"
dim = 16
[run]
log_every = 1
validate_every = 2
checkpoint_every = 2
"""
# Values of a log that differ between two runs.
_TIMES = ("seconds", "patches_per_second", "seconds_per_step", "expected_seconds")


@dataclass(frozen=True)
class WritingCommand:
    """A command that writes files.

    Attributes:
        words: Arguments. `{inputs}`, `{images}` and `{out}` are replaced by folders.
        read: Returns the content of the output in a folder, for a comparison.
        images: Folder of images among the inputs that the command reads, if any.
        prepare: Copies what the command changes from the inputs to the folder of outputs.
    """

    words: str
    read: Callable[[Path], Any]
    images: str | None = None
    prepare: Callable[[Path, Path], Any] = lambda inputs, out: None

    def arguments(self, inputs: Path, images: Path, out: Path) -> list[str]:
        """Return the arguments of the command line."""
        return [word.format(inputs=inputs, images=images, out=out) for word in self.words.split()]


def write_inputs(folder: Path) -> None:
    """Write photos, features, an index, patch sets, a COLMAP model, a recipe and a descriptor."""
    for number in range(IMAGES):
        write_photo(folder / "images" / f"{number}.png", number, 120, 160)
    for number in range(IMAGES, IMAGES + 2):
        write_photo(folder / "more-images" / f"{number}.png", number, 120, 160)
    for name, images in (("features", "images"), ("more", "more-images")):
        doap.extract_folder(folder / images, folder / name, "rootsift", workers=1, max_keypoints=30)
    build_index(folder / "features", folder / "index", kind="ivf")
    for name, scenes in (("set", "abc"), ("other", "de")):
        write_units(folder / name, 32, [(scene, scene, [2] * 60) for scene in scenes])
    _write_model(folder)
    names = [f"{number}.png" for number in range(IMAGES)]
    pairs = [f"{first} {second}\n" for first in names for second in names if first < second]
    (folder / "pairs.txt").write_text("".join(pairs))
    (folder / "recipe.toml").write_text(RECIPE)
    Descriptor.build("fast", dim=16).save(folder / "fast.safetensors")


def _write_model(folder: Path) -> None:
    """Write a COLMAP model of random points of a plane, and its images."""
    points = np.column_stack([np.random.default_rng(1).uniform(-0.5, 0.5, (100, 2)), np.zeros(100)])
    (folder / "plane").mkdir()
    write_scene(folder / "plane", points)
    plane = folder / "plane"
    write_track_file(plane / "sparse", plane / "images", folder / "plane.parquet", database=plane / "database.db")


def read_features(folder: Path) -> Any:
    """Return the features of a set, and the names of the current rows as another Parquet reader sees them.

    An image that changed may also have rows of its earlier versions; those of the newest run count.
    """
    features = FeatureSet(folder)
    images = {
        one.name: _digest(one.features.frames, one.features.responses, one.features.descriptors.numpy())
        for one in features.stream()
    }
    rows = ds.dataset(folder, format="parquet").to_table(columns=["name", "checksum"]).to_pylist()
    current = [row["name"] for row in rows if row["checksum"] == features.checksums.get(row["name"])]
    return {"images": images, "failed": features.failed, "rows": sorted(current)}


def read_hdf5(path: Path) -> Any:
    """Return all arrays of an HDF5 file."""
    import h5py

    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: _digest(item[()])} if hasattr(item, "dtype") else {}))
    return found


def read_index(folder: Path) -> Any:
    """Verify an index; return its images and the checksums of its files."""
    index = Index(folder)
    index.verify()
    return {"images": index.images, "files": {path.name: sha256(path) for path in sorted(folder.iterdir())}}


def read_set(folder: Path) -> Any:
    """Return the checksums of the files of a patch set, except its preview."""
    return {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != PREVIEW}


def read_run(folder: Path) -> Any:
    """Return the weights, the gallery and the log of a training run, without times."""
    weights = {
        name: {key: _digest(value.numpy()) for key, value in load_file(folder / name).items()}
        for name in ("best.safetensors", "last.safetensors")
    }
    with np.load(folder / "gallery.npz") as gallery:
        arrays = {name: _digest(values) for name, values in gallery.items()}
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    log = [{key: value for key, value in event.items() if key not in _TIMES} for event in events]
    return {"weights": weights, "gallery": arrays, "log": log}


def read_feature_files(folder: Path) -> Any:
    """Return the arrays of OpenSfM's files."""
    found = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            found[path.name] = {name: _digest(values) for name, values in arrays.items()}
    return found


def list_files(folder: Path) -> set[str]:
    """Return the paths of all files in a folder; numbers of parts and revisions do not count."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return {re.sub(r"part-\d+-\w+", "part", path) for path in paths}


def read_tracks(path: Path) -> Any:
    """Return the images and the tracks of a track file."""
    scene = read_track_file(path)
    return {"scene": scene.name, "images": scene.images, "tracks": _digest(scene.tracks.point, scene.tracks.frames)}


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


_FEATURES = "--descriptor rootsift --max-keypoints 30"
COMMANDS = {
    "extract": WritingCommand(
        f"extract {{images}} --out {{out}}/features --workers 1 {_FEATURES}",
        lambda out: read_features(out / "features"),
        images="images",
    ),
    "extract with processes": WritingCommand(
        f"extract {{images}} --out {{out}}/features --workers 2 {_FEATURES}",
        lambda out: read_features(out / "features"),
        images="images",
    ),
    "extract with ray": WritingCommand(
        f"extract {{images}} --out {{out}}/features --engine ray --workers 1 {_FEATURES}",
        lambda out: read_features(out / "features"),
        images="images",
    ),
    "colmap": WritingCommand(
        f"colmap {{images}} --out {{out}}/database.db --detector sift {_FEATURES}",
        lambda out: content(out / "database.db"),
        images="images",
    ),
    "hloc": WritingCommand(
        f"hloc {{images}} --out {{out}}/f.h5 --pairs {{inputs}}/pairs.txt --matches {{out}}/m.h5 {_FEATURES}",
        lambda out: {name: read_hdf5(out / name) for name in ("f.h5", "m.h5")},
        images="images",
    ),
    "opensfm": WritingCommand(
        f"opensfm {{images}} --out {{out}}/files {_FEATURES}",
        lambda out: read_feature_files(out / "files"),
        images="images",
    ),
    "index build": WritingCommand(
        "index build {inputs}/features --out {out}/index --kind ivf",
        lambda out: read_index(out / "index"),
    ),
    "index add": WritingCommand(
        "index add {inputs}/more --index {out}/index",
        lambda out: read_index(out / "index"),
        prepare=lambda inputs, out: shutil.copytree(inputs / "index", out / "index"),
    ),
    "index remove": WritingCommand(
        "index remove 0.png --index {out}/index",
        lambda out: read_index(out / "index"),
        prepare=lambda inputs, out: shutil.copytree(inputs / "index", out / "index"),
    ),
    "data from-images": WritingCommand(
        "data from-images {images} --out {out}/set --no-tracks --views 2 --keypoints 60",
        lambda out: read_set(out / "set"),
        images="images",
    ),
    "data from-colmap": WritingCommand(
        "data from-colmap {inputs}/plane/sparse {images} --scene plane --out {out}/set",
        lambda out: read_set(out / "set"),
        images="plane/images",
    ),
    "data tracks": WritingCommand(
        "data tracks {inputs}/plane/sparse {images} --database {inputs}/plane/database.db --out {out}/a.parquet",
        lambda out: read_tracks(out / "a.parquet"),
        images="plane/images",
    ),
    "data from-tracks": WritingCommand(
        "data from-tracks {inputs}/plane.parquet {images} --out {out}/set",
        lambda out: read_set(out / "set"),
        images="plane/images",
    ),
    "data merge": WritingCommand(
        "data merge {inputs}/set {inputs}/other --out {out}/set",
        lambda out: read_set(out / "set"),
    ),
    "train": WritingCommand(
        "train {inputs}/recipe.toml --data {inputs}/set --out {out}/run --device cpu",
        lambda out: read_run(out / "run"),
    ),
    "export": WritingCommand(
        "export {inputs}/fast.safetensors --out {out}/fast.onnx",
        lambda out: sha256(out / "fast.onnx"),
    ),
}
"""All writing commands by name."""
