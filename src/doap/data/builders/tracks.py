"""Tracks of a COLMAP model → groups of frames: where each point of the world is seen, how large and which way up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.data.builders.nearby import near_pairs
from doap.errors import DataError, import_extra
from doap.images import frames_from_arrays, inside, scales
from doap.images.frames import SIFT_EXTENT

Floats = NDArray[np.float64]
PLAIN_EXTENT = 16.0
"""Half the side in pixels, in the middle one of a track's views, where no keypoint tells its size."""


@dataclass(frozen=True)
class Tracks:
    """Observations that agree with each other, sorted by point.

    Attributes:
        images: names of the model's images, as COLMAP stores them.
        sizes: (height, width) of each, as the model has it.
        xyz: (T, 3) the points that kept two observations or more.
        point: (O,) index into `xyz`, increasing.
        image: (O,) index into `images`; a point is seen once in an image.
        keypoint: (O,) which keypoint of the image.
        frames: (O, 2, 3), pixel centres at integers.
        ignore: (P, 2) points that may be one physical spot; each pair once.
        dropped: how many observations each filter took.
    """

    images: list[str]
    sizes: list[tuple[int, int]]
    xyz: Floats
    point: NDArray[np.int64]
    image: NDArray[np.int64]
    keypoint: NDArray[np.int64]
    frames: NDArray[np.float32]
    ignore: NDArray[np.int64]
    dropped: dict[str, int]

    def observations(self) -> list[tuple[str, int]]:
        """(O,) image and keypoint: what models of the same photos may share."""
        return [(self.images[image], int(keypoint)) for image, keypoint in zip(self.image, self.keypoint, strict=True)]

    def without(self, seen: set[tuple[str, int]]) -> Tracks:
        """Those points none of whose observations is among the seen ones."""
        again = np.fromiter((one in seen for one in self.observations()), np.bool_, len(self.point))
        keep = np.bincount(self.point, again, len(self.xyz)) == 0
        place = np.cumsum(keep) - 1
        own = keep[self.point]
        return replace(
            self,
            xyz=self.xyz[keep],
            point=place[self.point[own]],
            image=self.image[own],
            keypoint=self.keypoint[own],
            frames=self.frames[own],
            ignore=place[self.ignore[keep[self.ignore].all(axis=1)]],
        )


def read_tracks(model: Path, database: Path | None = None, *, most: int = 16) -> Tracks:
    """Read a model's tracks and keep what is consistent.

    With a database, scale and orientation are those of its keypoints, so a detector's noise is in the groups; they are
    held against the cameras: an observation whose size in the world is off its track's median by more than half an
    octave, or whose orientation is off the track's mean by more than 20°, is a wrong match or a wrong frame. Without
    one, both come from the cameras: a square facing the first view, projected into the others.

    Args:
        model: folder with cameras, images and points3D (.bin or .txt).
        database: the one the model was made from, or None.
        most: observations kept of one track; a longer one is thinned evenly.
    """
    reconstruction = _open_model(model)
    images = [reconstruction.images[key] for key in sorted(reconstruction.images)]
    point, image, keypoint, xyz = _observations(reconstruction, {one.image_id: i for i, one in enumerate(images)})
    views = [_View(one, reconstruction.cameras[one.camera_id]) for one in images]
    seen, zoom, turn = _geometry(views, point, image, keypoint, xyz)
    keep = np.isfinite(zoom) & _first_in_image(point, image)
    dropped = {"seen twice in an image": int((~keep).sum())}
    if database is None:
        middle = _middle_of_tracks(np.log2(zoom, where=keep, out=np.zeros_like(zoom)), point, keep)
        half, angle = PLAIN_EXTENT * zoom / 2**middle, turn
    else:
        half, angle = _keypoint_frames(database, images, image, keypoint)
        world = np.log2(half / zoom, where=keep, out=np.zeros_like(zoom))
        agrees = np.abs(world - _middle_of_tracks(world, point, keep)) <= 0.5
        dropped["scale off its track"] = int((keep & ~agrees).sum())
        keep &= agrees
        agrees = _off_mean(angle - turn, point, keep) <= 20
        dropped["orientation off its track"] = int((keep & ~agrees).sum())
        keep &= agrees
    frames = frames_from_arrays(seen, half, angle)
    whole = np.zeros_like(keep)
    for number, view in enumerate(views):
        own = image == number
        whole[own] = inside(frames[own], view.height, view.width)
    dropped["patch leaves the image"] = int((keep & ~whole).sum())
    keep &= whole & (scales(frames) > 0)
    keep &= _thin(point, keep, most) & (np.bincount(point[keep], minlength=len(xyz))[point] > 1)
    kept, renumbered = np.unique(point[keep], return_inverse=True)
    place = np.full(len(xyz), -1)
    place[kept] = np.arange(len(kept))
    near = [near_pairs(seen[image == number]) for number in range(len(views))]
    spots = [place[point[image == number][pairs]] for number, pairs in enumerate(near)]
    ignore = np.unique(np.sort(np.concatenate([np.empty((0, 2), np.int64), *spots]), axis=1), axis=0)
    ignore = ignore[(ignore[:, 0] >= 0) & (ignore[:, 0] != ignore[:, 1])]
    names, sizes = [one.name for one in images], [(view.height, view.width) for view in views]
    return Tracks(names, sizes, xyz[kept], renumbered, image[keep], keypoint[keep], frames[keep], ignore, dropped)


class _View:
    """One image of a model: where it looks, and its linearised projection."""

    def __init__(self, image: Any, camera: Any) -> None:
        self.world_to_camera = np.asarray(image.cam_from_world().matrix())
        self.focal = float(camera.mean_focal_length())
        self.height, self.width = int(camera.height), int(camera.width)
        self.keypoints: Floats = np.array([point.xy for point in image.points2D], np.float64).reshape(-1, 2)


def _open_model(model: Path) -> Any:
    pycolmap = import_extra("pycolmap", "colmap")
    found = {path.stem for path in model.glob("*.bin")} | {path.stem for path in model.glob("*.txt")}
    if missing := {"cameras", "images", "points3D"} - found:
        raise DataError(f"{model}: expected a COLMAP model, got no {', '.join(sorted(missing))} (.bin or .txt) in it")
    try:
        return pycolmap.Reconstruction(str(model))
    except (ValueError, RuntimeError, IndexError) as error:
        raise DataError(f"{model}: expected a COLMAP model, got one that cannot be read ({error})") from error


def _observations(
    reconstruction: Any, place: dict[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Floats]:
    """Point, image and keypoint of each observation (O,), by point and image, and the points (T, 3)."""
    ids = sorted(reconstruction.points3D)
    rows = [
        (number, place[element.image_id], element.point2D_idx)
        for number, key in enumerate(ids)
        for element in reconstruction.points3D[key].track.elements
    ]
    table = np.array(sorted(rows), np.int64).reshape(-1, 3)
    xyz = np.array([reconstruction.points3D[key].xyz for key in ids], np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2], xyz


def _geometry(
    views: list[_View], point: NDArray[np.int64], image: NDArray[np.int64], keypoint: NDArray[np.int64], xyz: Floats
) -> tuple[Floats, Floats, Floats]:
    """What the cameras say of each observation: (O, 2) its place, (O,) pixels per unit of the world, (O,) turn.

    The turn, in degrees, is the rotation nearest to how a square that faces the first view lies in this one: of both
    its sides, since one alone may point at the camera. A point behind a camera has NaN pixels.
    """
    seen, zoom, turn = np.empty((len(point), 2)), np.empty(len(point)), np.empty(len(point))
    first_view = image[np.searchsorted(point, point)]
    sides = np.stack([view.world_to_camera[:2, :3] for view in views]) if views else np.empty((0, 2, 3))
    for number, view in enumerate(views):
        own = image == number
        # COLMAP's first pixel centre is (0.5, 0.5), ours is (0, 0).
        seen[own] = view.keypoints[keypoint[own]] - 0.5
        rotation, translation = view.world_to_camera[:, :3], view.world_to_camera[:, 3]
        x, y, z = (xyz[point[own]] @ rotation.T + translation).T
        right, down = (sides[first_view[own]] @ rotation.T).swapaxes(0, 1)
        # The projection's slopes at the point, times z²: only their ratio counts.
        (right_x, right_y), (down_x, down_y) = (
            (side[:, 0] * z - x * side[:, 2], side[:, 1] * z - y * side[:, 2]) for side in (right, down)
        )
        turn[own] = np.degrees(np.arctan2(right_y - down_x, right_x + down_y))
        zoom[own] = np.where(z > 0, view.focal / np.where(z > 0, z, 1), np.nan)
    return seen, zoom, turn


def _keypoint_frames(
    database: Path, images: list[Any], image: NDArray[np.int64], keypoint: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """(O,) half sides in pixels and (O,) angles in degrees of the keypoints observed."""
    import pycolmap

    if not database.is_file():
        raise DataError(
            f"{database}: expected COLMAP's database, got nothing there; leave --database out to do without"
        )
    half, angle = np.empty(len(image)), np.empty(len(image))
    opened = pycolmap.Database.open(database)
    for number, one in enumerate(images):
        own = image == number
        if not opened.exists_keypoints(one.image_id):
            raise DataError(f"{database}: expected keypoints of {one.name}, got none; is it the model's own database?")
        rows = np.asarray(opened.read_keypoints(one.image_id), np.float64)
        if own.any() and (rows.shape[1] < 4 or keypoint[own].max() >= len(rows)):
            raise DataError(
                f"{database}: expected {keypoint[own].max() + 1} keypoints with scale and orientation for {one.name}, "
                f"got {rows.shape}; leave --database out to do without"
            )
        half[own], angle[own] = _size_and_angle(rows[keypoint[own], 2:])
    opened.close()
    return half, angle


def _size_and_angle(columns: Floats) -> tuple[Floats, Floats]:
    """COLMAP keeps σ and radians (K, 2), or σ times an affine shape (K, 4): half sides in pixels, degrees."""
    if columns.shape[1] == 2:
        return SIFT_EXTENT * columns[:, 0], np.degrees(columns[:, 1])
    shape = columns.reshape(-1, 2, 2)
    half = SIFT_EXTENT * np.sqrt(np.abs(np.linalg.det(shape)))
    return half, np.degrees(np.arctan2(shape[:, 1, 0], shape[:, 0, 0]))


def _first_in_image(point: NDArray[np.int64], image: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Observations are sorted by point and image: the first of each such pair."""
    again = (np.diff(point, prepend=-1) == 0) & (np.diff(image, prepend=-1) == 0)
    return np.asarray(~again)


def _middle_of_tracks(values: Floats, point: NDArray[np.int64], keep: NDArray[np.bool_]) -> Floats:
    """(O,) the (lower) median of the kept values of each observation's track."""
    number = np.bincount(point[keep], minlength=int(point.max(initial=-1)) + 1)
    order = np.lexsort([values[keep], point[keep]])
    middle = values[keep][order][np.minimum(number.cumsum() - number + (number - 1) // 2, keep.sum() - 1).clip(0)]
    return np.asarray(middle[point])


def _off_mean(angle: Floats, point: NDArray[np.int64], keep: NDArray[np.bool_]) -> Floats:
    """(O,) degrees between each angle and the circular mean of its track's kept ones."""
    unit = np.exp(1j * np.radians(angle))
    size = int(point.max(initial=-1)) + 1
    mean = np.bincount(point, unit.real * keep, size) + 1j * np.bincount(point, unit.imag * keep, size)
    return np.asarray(np.abs(np.degrees(np.angle(unit * mean[point].conj()))))


def _thin(point: NDArray[np.int64], keep: NDArray[np.bool_], most: int) -> NDArray[np.bool_]:
    """Of each track at most `most` of the kept observations, evenly spaced."""
    number = np.bincount(point[keep], minlength=int(point.max(initial=-1)) + 1)
    running = keep.cumsum() - 1
    rank = running - (number.cumsum() - number)[point]
    total = np.maximum(number[point], 1)
    chosen = np.floor((rank + 1) * most / total) > np.floor(rank * most / total)
    return np.asarray(keep & (chosen | (total <= most)))
