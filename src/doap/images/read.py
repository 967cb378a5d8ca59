"""Grey images from files: whatever the file holds, out comes (height, width) uint8."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError, ShapeError

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".pgm"})

# A marker is 0xFF and a code. In the coded pixels 0xFF is followed by 0 (an escape) or 0xD0…0xD7 (a
# restart).
_JPEG_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])", re.DOTALL)
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xd9"
# The last chunk of a PNG is always the same: its name and its checksum.
_PNG_START, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"


def read_grey(path: str | Path) -> NDArray[np.uint8]:
    """Read an image as 8-bit grey.

    Pixels are returned as stored in the file. The EXIF orientation is ignored, as in COLMAP and
    hloc. Colour becomes luma and transparency is ignored. 16 bits become 8 by v / 257, so that the
    full range stays the full range. A file cut short is refused: decoders may fill what is missing
    with grey, and a descriptor of that is noise.

    Args:
        path: an image file of a format that OpenCV reads.

    Returns:
        (height, width).
    """
    import cv2

    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: expected an image file, got {error.strerror}; check the path") from error
    if not data:
        raise DataError(f"{path}: expected an image file, got an empty one; copy it again")
    if _is_truncated(data):
        raise DataError(f"{path}: expected a whole image, got a truncated one; copy it again")
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        image = None
    if image is None:
        raise DataError(f"{path}: expected an image OpenCV can decode, got a damaged or foreign file")
    return _to_8_bit(image, path)


def list_images(folder: str | Path) -> list[Path]:
    """Image files below a folder, at any depth, known by their extension, sorted by their path inside it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of images, got {'a file' if folder.exists() else 'nothing'}")
    images = [path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file()]
    if not images:
        known = " ".join(sorted(EXTENSIONS))
        raise DataError(f"{folder}: expected images ({known}), got a folder without any")
    return sorted(images, key=lambda path: path.relative_to(folder).as_posix())


def check_grey(image: NDArray[np.uint8]) -> tuple[int, int]:
    """Check that pixels are grey (height, width) uint8 and some; return height and width."""
    if image.ndim != 2:
        raise ShapeError(
            f"image: expected grey (height, width), got {image.shape}; give a file, or convert with cv2.cvtColor"
        )
    if image.dtype != np.uint8:
        raise ArgumentError(f"image: expected uint8, got {image.dtype}; give a file, or scale it to 0…255 first")
    if not image.size:
        raise ArgumentError(f"image: expected one pixel or more, got {image.shape[0]}×{image.shape[1]}")
    return image.shape[0], image.shape[1]


def shrink(image: NDArray[np.uint8], longest: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """An image (height, width) made smaller, if it has to be, to a longest side.

    Returns:
        The image, and the (3, 3) homography from its pixels to those of the original.
    """
    import cv2

    height, width = image.shape
    if max(height, width) <= longest:
        return image, np.eye(3)
    share = longest / max(height, width)
    size = (max(1, round(width * share)), max(1, round(height * share)))
    x, y = width / size[0], height / size[1]
    # The corner of the first pixel stays in place, and lies half a pixel before its centre.
    enlarge = np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1.0]])
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8), enlarge


def _is_truncated(data: bytes) -> bool:
    if data.startswith(_JPEG_START):
        return not _reaches_end_of_jpeg(data)
    # Decoders tell of the other formats themselves: each of them says in its header how long it
    # must be.
    return data.startswith(_PNG_START) and _PNG_END not in data


def _reaches_end_of_jpeg(data: bytes) -> bool:
    """Walk from marker to marker: the thumbnail within EXIF has an end of its own, and more may follow the true one."""
    position = len(_JPEG_START)
    while marker := _JPEG_MARKER.search(data, position):
        if marker[1] == _JPEG_END:
            return True
        # The length counts its own two bytes; the coded pixels after a scan's header are skipped by
        # the next search.
        position = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return False


def _to_8_bit(image: NDArray[np.generic], path: Path) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image.astype(np.uint8, copy=False)
    if image.dtype != np.uint16:
        raise DataError(f"{path}: expected 8 or 16 bits a pixel, got {image.dtype}; convert the image first")
    # 257 = 65535 / 255; half of it is added to round, and is why 16 bits are too few here.
    return ((image.astype(np.uint32) + 128) // 257).astype(np.uint8)
