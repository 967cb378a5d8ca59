"""Read the tracks of a COLMAP model as groups of frames with position, size and orientation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap._support.errors import DataError
from doap.data.colmap_model import open_model
from doap.images import frames_from_arrays, inside, scales
from doap.images.frames import COLMAP_PIXEL_CENTRE, SIFT_EXTENT

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

DEFAULT_HALF_SIDE = 16.0
"""Half side of a frame in pixels, in the view of median scale of a track, without keypoint sizes."""
MAX_SCALE_ERROR = 0.5
"""Largest difference in octaves between the scale of an observation and the median of its track."""
MAX_ANGLE_ERROR = 20.0
"""Largest difference in degrees between an observation's orientation and the mean of its track."""
SAME_POINT_RADIUS = 5.0
"""Keypoints of an image within this distance in pixels may show one physical point and ignore each other."""
_SQLITE = b"SQLite format 3\0"
_FAR = 1e9


@dataclass(frozen=True)
class Tracks:
    """Consistent observations of a model, sorted by point.

    Attributes:
        images: Names of the model's images, as stored by COLMAP.
        sizes: (height, width) of each image according to the model.
        xyz: (T, 3) points with at least two consistent observations.
        point: (O,) index into `xyz`, increasing.
        image: (O,) index into `images`. A point has at most one observation in an image.
        keypoint: (O,) index of the keypoint in the image.
        frames: (O, 2, 3) with pixel centres at integers.
        ignore: (P, 2) points that may be the same physical point; each pair once.
        dropped: Number of observations removed by each filter.
    """

    images: list[str]
    sizes: list[tuple[int, int]]
    xyz: Floats
    point: Integers
    image: Integers
    keypoint: Integers
    frames: NDArray[np.float32]
    ignore: Integers
    dropped: dict[str, int]

    def observations(self) -> list[tuple[str, int]]:
        """Return image name and keypoint of each observation. Models of the same photos may share some."""
        return [(self.images[image], int(keypoint)) for image, keypoint in zip(self.image, self.keypoint, strict=True)]

    def without(self, used: set[tuple[str, int]]) -> Tracks:
        """Return the points that have no observation in `used`."""
        is_used = np.fromiter((one in used for one in self.observations()), np.bool_, len(self.point))
        keep = np.bincount(self.point, is_used, len(self.xyz)) == 0
        new_index = np.cumsum(keep) - 1
        own = keep[self.point]
        both_kept = keep[self.ignore].all(axis=1)
        return replace(
            self,
            xyz=self.xyz[keep],
            point=new_index[self.point[own]],
            image=self.image[own],
            keypoint=self.keypoint[own],
            frames=self.frames[own],
            ignore=new_index[self.ignore[both_kept]],
        )


@dataclass(frozen=True)
class _Observations:
    """All observations of a model, sorted by point and image: indices (O,), and points (T, 3)."""

    point: Integers
    image: Integers
    keypoint: Integers
    xyz: Floats


class _View:
    """One image of a model: its pose, focal length, size and keypoints."""

    def __init__(self, image: Any, camera: Any) -> None:
        self.world_to_camera = np.asarray(image.cam_from_world().matrix())
        self.focal = float(camera.mean_focal_length())
        self.height, self.width = int(camera.height), int(camera.width)
        self.keypoints: Floats = np.array([point.xy for point in image.points2D], np.float64).reshape(-1, 2)


def read_tracks(model: Path, database: Path | None = None, *, max_views: int = 16) -> Tracks:
    """Read the tracks of a model and keep their consistent observations.

    With a database, scale and orientation are those of its keypoints, so that the groups contain
    the errors of the detector. Observations that contradict the cameras are wrong matches or wrong
    frames and are dropped: a size in the world more than half an octave from the median of the
    track, or an orientation more than 20° from its mean. Without a database, scale and orientation
    follow from the cameras: a square that faces the first view is projected into the other views.

    Args:
        model: Folder with cameras, images and points3D (.bin or .txt).
        database: Database from which the model was reconstructed, or None.
        max_views: Maximum number of observations per track. Longer tracks are thinned evenly.
    """
    reconstruction = open_model(model)
    images = [reconstruction.images[key] for key in sorted(reconstruction.images)]
    views = [_View(one, reconstruction.cameras[one.camera_id]) for one in images]
    observed = _read_observations(reconstruction, {one.image_id: index for index, one in enumerate(images)})
    point, image = observed.point, observed.image
    xy, zoom, turn = _project(views, observed)
    keep = np.isfinite(zoom) & _first_in_image(point, image)
    dropped = {"duplicate in image": int((~keep).sum())}
    if database is None:
        log_zoom = np.log2(zoom, where=keep, out=np.zeros_like(zoom))
        half, angle = DEFAULT_HALF_SIDE * zoom / 2 ** _track_median(log_zoom, point, keep), turn
    else:
        half, angle = _keypoint_frames(database, images, observed)
        log_size = np.log2(half / zoom, where=keep, out=np.zeros_like(zoom))
        scale_agrees = np.abs(log_size - _track_median(log_size, point, keep)) <= MAX_SCALE_ERROR
        dropped["inconsistent scale"] = int((keep & ~scale_agrees).sum())
        keep &= scale_agrees
        angle_agrees = _angle_to_mean(angle - turn, point, keep) <= MAX_ANGLE_ERROR
        dropped["inconsistent orientation"] = int((keep & ~angle_agrees).sum())
        keep &= angle_agrees
    # Damaged models have positions and sizes that float32 does not hold.
    fits = (np.abs(xy) < _FAR).all(axis=1) & (np.abs(half) < _FAR) & np.isfinite(angle)
    frames = frames_from_arrays(np.where(fits[:, None], xy, 0), np.where(fits, half, 0), np.where(fits, angle, 0))
    is_inside = np.zeros_like(keep)
    for number, view in enumerate(views):
        own = (image == number) & fits
        is_inside[own] = inside(frames[own], view.height, view.width)
    dropped["patch outside image"] = int((keep & ~is_inside).sum())
    keep &= is_inside & (scales(frames) > 0)
    has_match = np.bincount(point[keep], minlength=len(observed.xyz))[point] > 1
    keep &= has_match & _thin(point, keep, max_views)
    kept, renumbered = np.unique(point[keep], return_inverse=True)
    return Tracks(
        images=[one.name for one in images],
        sizes=[(view.height, view.width) for view in views],
        xyz=observed.xyz[kept],
        point=renumbered,
        image=image[keep],
        keypoint=observed.keypoint[keep],
        frames=frames[keep],
        ignore=_near_points(xy, observed, kept, len(views)),
        dropped=dropped,
    )


def _read_observations(reconstruction: Any, index_of_image: dict[int, int]) -> _Observations:
    ids = sorted(reconstruction.points3D)
    rows = [
        (number, index_of_image[element.image_id], element.point2D_idx)
        for number, key in enumerate(ids)
        for element in reconstruction.points3D[key].track.elements
    ]
    point, image, keypoint = np.array(sorted(rows), np.int64).reshape(-1, 3).T
    xyz = np.array([reconstruction.points3D[key].xyz for key in ids], np.float64).reshape(-1, 3)
    return _Observations(point, image, keypoint, xyz)


def _project(views: list[_View], observed: _Observations) -> tuple[Floats, Floats, Floats]:
    """Return what the cameras predict for each observation.

    Returns:
        (O, 2) position of its keypoint; (O,) pixels per unit of the world, NaN behind the camera;
        (O,) angle in degrees of the rotation nearest to the projection of a square that faces the
        first view of the track. Both sides of the square are used, because one side may point at
        the camera.
    """
    point, image = observed.point, observed.image
    xy, zoom, turn = np.empty((len(point), 2)), np.empty(len(point)), np.empty(len(point))
    first_view = image[np.searchsorted(point, point)]
    sides = np.stack([view.world_to_camera[:2, :3] for view in views]) if views else np.empty((0, 2, 3))
    for number, view in enumerate(views):
        own = image == number
        xy[own] = view.keypoints[observed.keypoint[own]] - COLMAP_PIXEL_CENTRE
        rotation, translation = view.world_to_camera[:, :3], view.world_to_camera[:, 3]
        in_camera = observed.xyz[point[own]] @ rotation.T + translation
        right, down = (sides[first_view[own]] @ rotation.T).swapaxes(0, 1)
        right_x, right_y = _projected_direction(right, in_camera)
        down_x, down_y = _projected_direction(down, in_camera)
        turn[own] = np.degrees(np.arctan2(right_y - down_x, right_x + down_y))
        z = in_camera[:, 2]
        zoom[own] = np.where(z > 0, view.focal / np.where(z > 0, z, 1), np.nan)
    return xy, zoom, turn


def _projected_direction(direction: Floats, position: Floats) -> tuple[Floats, Floats]:
    """Project directions (O, 3) at positions (O, 3), in camera coordinates, up to a factor of z²."""
    x, y, z = position.T
    return direction[:, 0] * z - x * direction[:, 2], direction[:, 1] * z - y * direction[:, 2]


def _keypoint_frames(database: Path, images: list[Any], observed: _Observations) -> tuple[Floats, Floats]:
    """Return half sides in pixels (O,) and angles in degrees (O,) of the observed keypoints."""
    if not database.is_file():
        raise DataError(f"{database}: no such COLMAP database. Omit --database to use the cameras only.")
    keypoints = _read_keypoints(database, [one.image_id for one in images])
    half, angle = np.empty(len(observed.image)), np.empty(len(observed.image))
    for number, one in enumerate(images):
        own, rows = observed.image == number, keypoints[number]
        if rows is None:
            raise DataError(f"{database}: no keypoints of {one.name}. Use the database of this model.")
        keypoint = observed.keypoint[own]
        if own.any() and (rows.shape[1] < 4 or keypoint.max() >= len(rows)):
            raise DataError(
                f"{database}: expected at least {keypoint.max() + 1} keypoints with scale and orientation for "
                f"{one.name}, got an array {rows.shape}. Omit --database to use the cameras only."
            )
        half[own], angle[own] = _size_and_angle(rows[keypoint, 2:])
    return half, angle


def _read_keypoints(database: Path, ids: list[int]) -> list[Floats | None]:
    """Return the keypoints (N, columns) of some images; None for an image without."""
    import pycolmap

    # COLMAP logs lines of its own about other files, and would write its tables to an empty one.
    with database.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            raise DataError(f"{database}: not a COLMAP database. Use the database of this model.")
    try:
        with pycolmap.Database.open(database) as opened:
            return [
                np.asarray(opened.read_keypoints(one), np.float64) if opened.exists_keypoints(one) else None
                for one in ids
            ]
    except (RuntimeError, ValueError, IndexError, MemoryError) as error:
        raise DataError(f"{database}: damaged COLMAP database ({error}). Copy or create it again.") from error


def _size_and_angle(columns: Floats) -> tuple[Floats, Floats]:
    """Return half sides in pixels and angles in degrees of COLMAP keypoints.

    Args:
        columns: (K, 2) with σ and orientation in radians, or (K, 4) with σ times an affine shape.
    """
    if columns.shape[1] == 2:
        return SIFT_EXTENT * columns[:, 0], np.degrees(columns[:, 1])
    shape = columns.reshape(-1, 2, 2)
    half = SIFT_EXTENT * np.sqrt(np.abs(np.linalg.det(shape)))
    return half, np.degrees(np.arctan2(shape[:, 1, 0], shape[:, 0, 0]))


def _near_points(xy: Floats, observed: _Observations, points: Integers, views: int) -> Integers:
    """Return pairs (P, 2) of indices into `points` that are close to each other in some image."""
    new_index = np.full(len(observed.xyz), -1)
    new_index[points] = np.arange(len(points))
    pairs = [np.empty((0, 2), np.int64)]
    for number in range(views):
        own = observed.image == number
        pairs.append(new_index[observed.point[own][near_pairs(xy[own])]])
    unique = np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0)
    both_kept = unique[:, 0] >= 0
    return np.asarray(unique[both_kept & (unique[:, 0] != unique[:, 1])])


def _first_in_image(point: Integers, image: Integers) -> Mask:
    """Return which observations (O,) are the first of their point in their image."""
    repeated = (np.diff(point, prepend=-1) == 0) & (np.diff(image, prepend=-1) == 0)
    return np.asarray(~repeated)


def _track_median(values: Floats, point: Integers, keep: Mask) -> Floats:
    """Return the lower median (O,) of the kept values of each observation's track."""
    count = _track_lengths(point, keep)
    first = count.cumsum() - count
    by_track = values[keep][np.lexsort([values[keep], point[keep]])]
    # A track without kept values has no median; its index only has to be valid.
    middle = np.minimum(first + (count - 1) // 2, len(by_track) - 1).clip(0)
    return np.asarray(by_track[middle][point])


def _angle_to_mean(angle: Floats, point: Integers, keep: Mask) -> Floats:
    """Return degrees (O,) between each angle and the circular mean of the kept ones of its track."""
    unit = np.exp(1j * np.radians(angle))
    tracks = int(point.max(initial=-1)) + 1
    mean = np.bincount(point, unit.real * keep, tracks) + 1j * np.bincount(point, unit.imag * keep, tracks)
    return np.asarray(np.abs(np.degrees(np.angle(unit * mean[point].conj()))))


def _thin(point: Integers, keep: Mask, max_views: int) -> Mask:
    """Return at most `max_views` of the kept observations of each track, evenly spaced."""
    count = _track_lengths(point, keep)
    first = count.cumsum() - count
    rank = keep.cumsum() - 1 - first[point]
    length = np.maximum(count[point], 1)
    # Rank r is chosen where r·max_views / length passes an integer.
    chosen = np.floor((rank + 1) * max_views / length) > np.floor(rank * max_views / length)
    return np.asarray(keep & (chosen | (length <= max_views)))


def _track_lengths(point: Integers, keep: Mask) -> Integers:
    """Return the number of kept observations (T,) of each track."""
    return np.bincount(point[keep], minlength=int(point.max(initial=-1)) + 1)


def near_pairs(points: NDArray[np.floating], radius: float = SAME_POINT_RADIUS) -> NDArray[np.int64]:
    """Return the indices (P, 2) of all points (N, 2) at most `radius` apart, sorted, smaller first.

    The points are sorted by x. Step k compares all points with their k-th neighbours to the right,
    until no neighbour is near enough.

    >>> near_pairs(np.array([[0.0, 0.0], [9.0, 0.0], [3.0, 4.0]])).tolist()
    [[0, 2]]
    """
    order = points[:, 0].argsort(kind="stable")
    by_x = points[order]
    found = [np.empty((0, 2), np.int64)]
    for step in range(1, len(points)):
        offset = by_x[step:] - by_x[:-step]
        if (offset[:, 0] > radius).all():
            break
        near = np.square(offset).sum(axis=1) <= radius**2
        found.append(np.stack([order[:-step][near], order[step:][near]], axis=1))
    return np.unique(np.sort(np.concatenate(found), axis=1), axis=0)
