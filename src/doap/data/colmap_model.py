"""COLMAP models: open those of unknown origin, and reconstruct photos reproducibly.

pycolmap trusts the counts in binary files: wrong ones make it hang, and it does not notice the end of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from doap._support.errors import DataError, import_extra, import_pycolmap
from doap._support.files import check_inside
from doap._support.processes import ChildFault, call_in_child
from doap.images import read_grey

_FILES = ("cameras", "images", "points3D")
_MAX_SIDE = 1 << 24
_MORE_BYTES = 1 << 20
MAX_PHOTOS_EXHAUSTIVE = 100
"""Larger scenes are matched sequentially, in the order of the names, instead of exhaustively."""


def open_model(model: Path) -> Any:
    """Return the `pycolmap.Reconstruction` in a folder with cameras, images and points3D (.bin or .txt)."""
    pycolmap = import_extra("pycolmap", "colmap")
    found = {path for path in model.glob("*") if path.suffix in (".bin", ".txt")}
    if missing := set(_FILES) - {path.stem for path in found}:
        raise DataError(f"{model}: not a COLMAP model. Missing files (.bin or .txt): {', '.join(sorted(missing))}.")
    with TemporaryDirectory() as copy:
        try:
            names = call_in_child(copy_model, str(model), copy, size=sum(path.stat().st_size for path in found))
        except ChildFault as fault:
            message = f"{model}: the COLMAP model cannot be read ({fault}). If it is damaged, reconstruct it again."
            raise DataError(message) from fault
        # pycolmap has written the copy, so it can be trusted.
        reconstruction = pycolmap.Reconstruction(copy)
    for name in names:
        check_inside(name, model)
    return reconstruction


def copy_model(model: str, copy: str) -> list[str]:
    """Read a model and write it again as binary files; return the names of its images.

    Raises:
        Exception: Of any type, if the model is damaged.
    """
    import pycolmap

    reconstruction = pycolmap.Reconstruction(model)
    for number, camera in reconstruction.cameras.items():
        sides = camera.width, camera.height
        if not all(0 < side < _MAX_SIDE for side in sides) or not np.isfinite(camera.params).all():
            raise ValueError(f"camera {number} has an impossible size or parameter")
    for image in reconstruction.images.values():
        if not np.isfinite(image.cam_from_world().matrix()).all():
            raise ValueError(f"image {image.name} has an impossible pose")
    points = reconstruction.points3D.values()
    if not np.isfinite([point.xyz for point in points]).all():
        raise ValueError("a point is not finite")
    # pycolmap checks that an image observes the points whose tracks name it, but not the reverse.
    if sum(point.track.length() for point in points) != reconstruction.compute_num_observations():
        raise ValueError("an image observes a point that does not exist")
    reconstruction.write_binary(copy)
    # pycolmap does not notice that the disk is full.
    Path(copy, "more").write_bytes(bytes(_MORE_BYTES))
    originals = [Path(model, f"{name}.bin") for name in _FILES]
    # If one of them is missing, pycolmap reads the text files.
    if all(path.is_file() for path in originals):
        originals += [path for name in ("rigs", "frames") if (path := Path(model, f"{name}.bin")).is_file()]
        for path in originals:
            if path.stat().st_size != (expected := Path(copy, path.name).stat().st_size):
                raise ValueError(f"{path.name}: expected {expected:,} bytes, got {path.stat().st_size:,}")
    return [image.name for image in reconstruction.images.values()]


def reconstruct_scene(folder: Path, names: Sequence[str], work: Path) -> tuple[Path, list[Path]]:
    """Extract, match and map some photos of a folder.

    COLMAP runs on one thread with fixed seeds. Bundle adjustment adds floats in the order in which threads finish, and
    an interrupted and resumed build must produce the same bytes. Scenes are processed in parallel instead.

    Photos that see too few points of the model are not registered. COLMAP's structure-less fallback, which would try
    them again with matches between pairs of photos, is off: it takes about half a minute for each of them.

    Returns:
        Path of the database in the empty folder `work`, and folders of the models, largest first; none if no photos
        overlap.
    """
    # COLMAP decodes the photos itself, and would allocate any size that a header declares; OpenCV does not.
    for name in names:
        read_grey(folder / name)
    pycolmap = import_pycolmap()
    pycolmap.set_random_seed(0)
    database, sparse = work / "database.db", work / "sparse"
    sparse.mkdir()
    pycolmap.extract_features(
        database,
        folder,
        list(names),
        camera_mode=pycolmap.CameraMode.PER_IMAGE,
        extraction_options=pycolmap.FeatureExtractionOptions(num_threads=1, use_gpu=False),
        device=pycolmap.Device.cpu,
    )
    match = pycolmap.match_exhaustive if len(names) <= MAX_PHOTOS_EXHAUSTIVE else pycolmap.match_sequential
    match(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(num_threads=1, use_gpu=False),
        verification_options=pycolmap.TwoViewGeometryOptions(ransac={"random_seed": 0}),
        device=pycolmap.Device.cpu,
    )
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=1, random_seed=0, extract_colors=False, structure_less_registration_fallback=False
    )
    models = pycolmap.incremental_mapping(database, folder, sparse, options)
    largest_first = sorted(models, key=lambda key: (-models[key].num_reg_images(), key))
    return database, [sparse / str(key) for key in largest_first]
