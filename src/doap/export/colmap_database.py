"""Parts of a COLMAP database: images with cameras, keypoints, and verified matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from doap._support.checks import check_shape
from doap._support.errors import import_pycolmap
from doap.images.frames import COLMAP_PIXEL_CENTRE, SIFT_EXTENT
from doap.types import Features, Matches

MAX_ERROR = 1.0
"""Default of the maximum epipolar error of a verified match in pixels."""
CameraMode = Literal["auto", "single", "per-folder", "per-image"]
NamedMatches = tuple[str, str, Matches]
"""Names of two images, and their matches."""


def create_database(database: Path, images: Path, names: Sequence[str], camera_mode: CameraMode) -> None:
    """Create a database with images and COLMAP's guess of their cameras.

    Args:
        database: New file.
        images: Folder of the images.
        names: Paths of the images inside the folder.
        camera_mode: Images that share a camera; see `doap.write_colmap`.
    """
    pycolmap = import_pycolmap()
    pycolmap.Database.open(database).close()
    mode = getattr(pycolmap.CameraMode, camera_mode.upper().replace("-", "_"))
    pycolmap.import_images(database, images, mode, list(names))


def write_matched_features(
    database: Path,
    features: Mapping[str, Features],
    matches: Iterable[NamedMatches],
) -> None:
    """Write given keypoints and matches to a database that has the images. Descriptors are not written.

    Args:
        database: Database of `create_database`.
        features: Features by image name.
        matches: Matches of image pairs; each keypoint of a pair occurs once at most.
    """
    pycolmap = import_pycolmap()
    with pycolmap.Database.open(database) as opened:
        ids = read_ids(opened)
        for name, of_image in features.items():
            opened.write_keypoints(ids[name], make_keypoints(of_image.frames))
        for name0, name1, found in matches:
            opened.write_matches(ids[name0], ids[name1], found.indices.astype(np.uint32))


def verify_matches(database: Path, seed: int = 0, max_error: float = 4.0) -> None:
    """Verify all matches of a database with COLMAP's two-view geometry.

    Args:
        database: Database with keypoints and matches.
        seed: Random seed of RANSAC.
        max_error: Maximum epipolar error of an inlier in pixels; the default is COLMAP's.
    """
    pycolmap = import_pycolmap()
    options = pycolmap.TwoViewGeometryOptions(ransac={"random_seed": seed, "max_error": max_error})
    pycolmap.geometric_verification(database, two_view_geometry_options=options)


def make_keypoints(frames: NDArray[np.float32]) -> NDArray[np.float32]:
    """Convert frames (N, 2, 3) to COLMAP's keypoints. COLMAP's first pixel centre is (0.5, 0.5), doap's is (0, 0).

    The scale is σ, a sixth of half the side, for frames of any detector. `doap data from-colmap` recovers the described
    patch from it. COLMAP itself does not use it.

    Returns:
        (N, 4) x, y, σ and orientation in radians, clockwise; if not all frames are square, (N, 6) x, y and A / 6.
    """
    check_shape(frames, "N 2 3", name="frames")
    precise = frames.astype(np.float64)
    shape, xy = precise[:, :, :2] / SIFT_EXTENT, precise[:, :, 2] + COLMAP_PIXEL_CENTRE
    (a, b), (c, d) = shape.transpose(1, 2, 0)
    size = np.hypot(a, c)
    # The sides of a downscaled image are rounded to pixels, so its frames are not exactly square.
    if (np.hypot(a - d, b + c) <= 1e-3 * size).all():
        return np.column_stack([xy, size, np.arctan2(c, a)]).astype(np.float32)
    return np.column_stack([xy, a, b, c, d]).astype(np.float32)


def read_ids(opened: Any) -> dict[str, int]:
    """Return the ids of a database's images by name."""
    return {image.name: image.image_id for image in opened.read_all_images()}
