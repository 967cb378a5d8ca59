"""Read image files as 8-bit grey arrays (H, W)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doap.errors import ArgumentError, DataError, ShapeError
from doap.images.header import declared_size

MAX_PIXELS = 1 << 28
"""Default limit of the pixels of an image."""
EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".pgm"})

# A marker is 0xFF and a code. Within coded pixels, 0xFF is followed by 0 (escape) or 0xD0…0xD7
# (restart).
_JPEG_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])", re.DOTALL)
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xd9"
# Name and checksum of the last chunk of every PNG.
_PNG_START, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"


def read_grey(path: str | Path) -> NDArray[np.uint8]:
    """Read an image as 8-bit grey.

    Pixels are returned as stored in the file. The EXIF orientation is ignored, as in COLMAP and
    hloc. Colour is converted to luma and transparency is dropped. 16-bit values are divided by 257,
    which maps the full range to the full range. Truncated files raise an error, because decoders
    may fill the missing part with grey. So do images with more than 2²⁸ pixels (about 16,000 ×
    16,000), because a small file can declare a size that does not fit into memory. Set the
    environment variable DOAP_MAX_PIXELS to read larger ones.

        image = read_grey("photo.jpg")   # (H, W) uint8

    Args:
        path: Image file in a format that OpenCV reads.
    """
    import cv2

    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read the image file: {error.strerror}. Check the path.") from error
    if not data:
        raise DataError(f"{path}: the image file is empty. Copy it again.")
    if _is_truncated(data):
        raise DataError(f"{path}: the image file is truncated. Copy it again.")
    _check_pixels(data, path)
    flags = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        image = None
    if image is None:
        raise DataError(f"{path}: OpenCV cannot decode the file. It is damaged or not an image.")
    return _to_8_bit(image, path)


def list_images(folder: str | Path) -> list[Path]:
    """Return all image files of a folder and its subfolders, sorted by their relative path."""
    folder = Path(folder)
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder}: expected a folder of images, but it {fault}.")
    images = [path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file()]
    for path in images:
        # Names are stored in text files, Parquet and databases.
        if not path.as_posix().isprintable() and any("\ud800" <= letter <= "\udfff" for letter in path.as_posix()):
            raise DataError(f"{path}: the file name is not UTF-8. Rename the image.")
    if not images:
        known = " ".join(sorted(EXTENSIONS))
        raise DataError(f"{folder}: expected images ({known}), but the folder contains none.")
    return sorted(images, key=lambda path: path.relative_to(folder).as_posix())


def check_grey(image: NDArray[np.uint8]) -> tuple[int, int]:
    """Check that an image is grey, uint8 and not empty; return (height, width)."""
    if image.ndim != 2:
        raise ShapeError(
            f"image: expected a grey image (H, W), got {image.shape}. Convert it with cv2.cvtColor, or pass a file."
        )
    if image.dtype != np.uint8:
        raise ArgumentError(f"image: expected uint8, got {image.dtype}. Pass a file, or scale the image to 0…255.")
    if not image.size:
        raise ArgumentError(f"image: expected at least one pixel, got {image.shape[0]}×{image.shape[1]}.")
    return image.shape[0], image.shape[1]


def shrink(image: NDArray[np.uint8], longest_side: int) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Shrink an image (H, W) to a longest side, if it is larger.

    Returns:
        The image, and the homography (3, 3) from its pixels to those of the original.
    """
    import cv2

    height, width = image.shape
    if max(height, width) <= longest_side:
        return image, np.eye(3)
    factor = longest_side / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    x, y = width / size[0], height / size[1]
    # The outer corner of the first pixel is fixed, half a pixel from its centre.
    enlarge = np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1.0]])
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8), enlarge


def _check_pixels(data: bytes, path: Path) -> None:
    """Refuse an image whose header declares too many pixels."""
    setting = os.environ.get("DOAP_MAX_PIXELS", str(MAX_PIXELS))
    if not setting.isdecimal():
        raise ArgumentError(f"DOAP_MAX_PIXELS: expected a number of pixels, got {setting!r}.")
    height, width = declared_size(data) or (0, 0)
    if height * width > int(setting):
        raise DataError(
            f"{path}: expected at most {int(setting):,} pixels, got {width:,} × {height:,}. "
            "Set DOAP_MAX_PIXELS to read larger images."
        )


def _is_truncated(data: bytes) -> bool:
    if data.startswith(_JPEG_START):
        return not _reaches_end_of_jpeg(data)
    # Decoders detect truncation of the other formats, whose headers contain the length.
    return data.startswith(_PNG_START) and _PNG_END not in data


def _reaches_end_of_jpeg(data: bytes) -> bool:
    """Follow the markers to the end. An EXIF thumbnail contains an end marker of its own."""
    position = len(_JPEG_START)
    while marker := _JPEG_MARKER.search(data, position):
        if marker[1] == _JPEG_END:
            return True
        # The length includes its own two bytes. The next search skips coded pixels after a scan
        # header.
        position = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return False


def _to_8_bit(image: NDArray[np.generic], path: Path) -> NDArray[np.uint8]:
    if image.dtype == np.uint8:
        return image.astype(np.uint8, copy=False)
    if image.dtype != np.uint16:
        raise DataError(f"{path}: expected 8 or 16 bits per channel, got {image.dtype}. Convert the image first.")
    # 257 = 65535 / 255. Adding half of it for rounding needs more than 16 bits.
    return ((image.astype(np.uint32) + 128) // 257).astype(np.uint8)
