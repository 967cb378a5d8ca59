"""Open COLMAP models of unknown origin.

pycolmap trusts the counts in binary files: wrong ones make it hang, and it does not notice the end of a file.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from doap._support.errors import DataError, import_extra
from doap._support.files import check_inside
from doap._support.processes import ChildFault, call_in_child

_FILES = ("cameras", "images", "points3D")
_MAX_SIDE = 1 << 24
_MORE_BYTES = 1 << 20


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
