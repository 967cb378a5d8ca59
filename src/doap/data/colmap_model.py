"""Open COLMAP models of unknown origin: pycolmap trusts the counts in binary files, and wrong ones make it hang."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doap.errors import DataError, import_extra
from doap.files import check_inside

# Number of parameters of each camera model, by its number in cameras.bin.
_PARAMETERS = (3, 4, 4, 5, 8, 8, 12, 5, 4, 5, 12, 16, 4, 5, 3, 4, 6, 2)


def open_model(model: Path) -> Any:
    """Return the `pycolmap.Reconstruction` in a folder with cameras, images and points3D (.bin or .txt)."""
    pycolmap = import_extra("pycolmap", "colmap")
    found = {path.stem for path in model.glob("*.bin")} | {path.stem for path in model.glob("*.txt")}
    if missing := {"cameras", "images", "points3D"} - found:
        raise DataError(f"{model}: not a COLMAP model. Missing files (.bin or .txt): {', '.join(sorted(missing))}.")
    _check_binary(model)
    try:
        reconstruction = pycolmap.Reconstruction(str(model))
        # pycolmap decodes a name when it is read. Text files are not checked before.
        names = [str(image.name) for image in reconstruction.images.values()]
    except (ValueError, RuntimeError, IndexError) as error:
        raise DataError(f"{model}: the COLMAP model cannot be read ({error}).") from error
    for name in names:
        check_inside(name, model)
    return reconstruction


class _Cursor:
    """Reads a binary file from its beginning; every count is compared with the number of bytes that are left."""

    def __init__(self, path: Path) -> None:
        self.path, self._data, self._position = path, path.read_bytes(), 0

    def read(self, layout: str) -> tuple[Any, ...]:
        """Read packed little-endian values."""
        start = self._position
        self.skip(struct.calcsize("<" + layout))
        return struct.unpack_from("<" + layout, self._data, start)

    def count(self, layout: str, bytes_each: int) -> int:
        """Read a count of items that take at least this many bytes each."""
        (number,) = self.read(layout)
        if number * bytes_each > len(self._data) - self._position:
            raise self.fault(f"a count of {number:,} exceeds the file")
        return int(number)

    def skip(self, size: int) -> slice:
        """Skip bytes and return their position."""
        skipped = slice(self._position, self._position + size)
        if skipped.stop > len(self._data):
            raise self.fault("the file is truncated")
        self._position = skipped.stop
        return skipped

    def skip_name(self) -> None:
        """Skip a text that ends with a zero byte."""
        end = self._data.find(b"\0", self._position)
        if end < 0:
            raise self.fault("the file is truncated")
        try:
            self._data[self._position : end].decode()
        except UnicodeDecodeError as error:
            raise self.fault("an image name is not UTF-8") from error
        self._position = end + 1

    def array(self, where: slice, dtype: Any) -> NDArray[Any]:
        return np.frombuffer(self._data[where], dtype)

    def join(self, parts: list[slice]) -> bytes:
        return b"".join(self._data[part] for part in parts)

    def end(self) -> None:
        if self._position != len(self._data):
            raise self.fault("data after the last item")

    def fault(self, reason: str) -> DataError:
        return DataError(f"{self.path}: damaged COLMAP model: {reason}. Copy or reconstruct it again.")


def _check_binary(model: Path) -> None:
    """Check counts and references of the binary files of a model."""
    # pycolmap prefers binary files if all of them exist.
    if not all((model / f"{name}.bin").is_file() for name in ("cameras", "images", "points3D")):
        return
    cameras = _check_cameras(_Cursor(model / "cameras.bin"))
    keypoints = _check_images(images := _Cursor(model / "images.bin"), cameras)
    points = _check_points(_Cursor(model / "points3D.bin"), keypoints)
    unknown = {point for _, seen in keypoints.values() for point in seen.tolist()} - points - {-1}
    if unknown:
        raise images.fault(f"point {min(unknown)} is not in points3D.bin")
    for name, check in {"rigs": _check_rigs, "frames": _check_frames}.items():
        if (path := model / f"{name}.bin").is_file():
            check(_Cursor(path))


def _check_cameras(file: _Cursor) -> set[int]:
    cameras = set()
    for _ in range(file.count("Q", 24)):
        camera, kind, width, height = file.read("IiQQ")
        if not 0 <= kind < len(_PARAMETERS):
            raise file.fault(f"camera {camera} has the unknown model {kind}")
        parameters = file.array(file.skip(8 * _PARAMETERS[kind]), "<f8")
        if not np.isfinite(parameters).all() or not 0 < width < 1 << 24 or not 0 < height < 1 << 24:
            raise file.fault(f"camera {camera} has an impossible size or parameter")
        cameras.add(camera)
    file.end()
    return cameras


def _check_images(file: _Cursor, cameras: set[int]) -> dict[int, tuple[int, NDArray[np.int64]]]:
    """Return the number of keypoints and the points that they observe, by image."""
    keypoints = {}
    for _ in range(file.count("Q", 73)):
        image, *pose, camera = file.read("I7dI")
        if not np.isfinite(pose).all() or not any(pose[:4]) or camera not in cameras:
            raise file.fault(f"image {image} has an impossible pose or the unknown camera {camera}")
        file.skip_name()
        number = file.count("Q", 24)
        stored = file.array(file.skip(24 * number), [("xy", "<f8", 2), ("point", "<i8")])
        if not np.isfinite(stored["xy"]).all():
            raise file.fault(f"image {image} has a keypoint that is not finite")
        keypoints[image] = number, stored["point"]
    file.end()
    return keypoints


def _check_points(file: _Cursor, keypoints: dict[int, tuple[int, NDArray[np.int64]]]) -> set[int]:
    points, tracks = set(), []
    for _ in range(file.count("Q", 51)):
        point, *xyz = file.read("Q3d3x8x")
        if not np.isfinite(xyz).all():
            raise file.fault(f"point {point} is not finite")
        tracks.append(file.skip(8 * file.count("Q", 8)))
        points.add(point)
    file.end()
    elements = np.frombuffer(file.join(tracks), "<u4").reshape(-1, 2)
    known = np.array(sorted(keypoints), np.int64)
    limits = np.array([keypoints[image][0] for image in known.tolist()], np.int64)
    position = np.searchsorted(known, elements[:, 0])
    position[position == len(known)] = 0
    if len(elements) and not (len(known) and (known[position] == elements[:, 0]).all()):
        raise file.fault("a track refers to an unknown image")
    if len(elements) and not (elements[:, 1] < limits[position]).all():
        raise file.fault("a track refers to an unknown keypoint")
    return points


def _check_rigs(file: _Cursor) -> None:
    for _ in range(file.count("Q", 8)):
        _, sensors = file.read("II")
        if sensors:
            file.skip(8)
        for _ in range(sensors - 1):
            *_, has_pose = file.read("iIB")
            file.skip(56 * bool(has_pose))
    file.end()


def _check_frames(file: _Cursor) -> None:
    for _ in range(file.count("Q", 68)):
        file.skip(8 + 56)
        file.skip(16 * file.count("I", 16))
    file.end()
