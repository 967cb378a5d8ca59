"""Read image files, and convert images of other libraries, to 8-bit arrays: grey, or colour for pictures."""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from doap._support.checks import check_shape
from doap._support.errors import ArgumentError, DataError, ShapeError, is_out_of_memory


class PillowImage(Protocol):
    """An image of Pillow, which doap does not import."""

    mode: str

    def convert(self, mode: str) -> Any: ...


ImageSource = str | Path | NDArray[Any] | PillowImage
"""An image file, an image of Pillow, or pixels; see `as_grey`."""

_LOG = logging.getLogger(__name__)

HEIF_EXTENSIONS = frozenset({".heic", ".heif"})
"""Files that need the extra `heif`."""
EXTENSIONS = HEIF_EXTENSIONS | {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".pgm"}

_MAX_16_BIT = 65535
# Weights of blue, green and red as in libpng, in units of 1/32,768.
_LUMA = (3737, 19234, 9797)
# Counts images with stretched values. Only the first is reported, because a folder may hold thousands.
_stretched = count()
# A marker is 0xFF and a code. Within coded pixels, 0xFF is followed by 0 (escape) or 0xD0…0xD7 (restart).
_JPEG_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])", re.DOTALL)
_JPEG_START, _JPEG_END = b"\xff\xd8", b"\xd9"
# Name and checksum of the last chunk of every PNG.
_PNG_START, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
_TIFF_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_TIFF_ORIENTATION, _TIFF_LONG, _BIG_TIFF = 274, 4, 43


def read_grey(path: str | Path) -> NDArray[np.uint8]:
    """Read an image as 8-bit grey.

    Pixels are returned as stored in the file. The EXIF orientation is ignored, as in COLMAP and hloc. Colour is
    converted to luma and transparency is dropped. 16-bit values are divided by 257, which maps the full range to the
    full range. If they span a quarter of that range or less, such as the 12 bits of many cameras or the counts of a
    thermal sensor, the range from the 0.1 to the 99.9 percentile is stretched instead, and a warning is logged for the
    first such image. Truncated files raise an error, because decoders may fill the missing part with grey. So do images
    with more pixels than OpenCV's limit, 2³⁰ by default, because a small file can declare a size that does not fit into
    memory.

        image = read_grey("photo.jpg")   # (H, W) uint8

    Args:
        path: Image file in a format that OpenCV reads, or HEIC with the extra `heif`.
    """
    return decode_grey(_read_file(path), str(path))


def decode_grey(data: bytes, name: str) -> NDArray[np.uint8]:
    """Decode the contents of an image file as `read_grey` does; `name` is its path or URL."""
    import cv2

    return _to_8_bit(_decode(data, name, cv2.IMREAD_GRAYSCALE), name)


def decode_mask(data: bytes, name: str, size: tuple[int, ...]) -> NDArray[np.uint8]:
    """Decode the contents of a mask file as `as_mask` does."""
    import cv2

    return _check_mask(_decode(data, name, cv2.IMREAD_GRAYSCALE), name, size)


def read_colour(path: str | Path) -> NDArray[np.uint8]:
    """Read an image in colour, to show it: (H, W, 3) uint8 as blue, green, red, by the rules of `read_grey`."""
    return decode_colour(_read_file(path), str(path))


def decode_colour(data: bytes, name: str) -> NDArray[np.uint8]:
    """Decode the contents of an image file as `read_colour` does; `name` is its path or URL."""
    import cv2

    return _to_8_bit(_decode(data, name, cv2.IMREAD_COLOR), name)


def _read_file(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read the image file: {error.strerror}. Check the path.") from error


def _decode(data: bytes, name: str, mode: int) -> NDArray[Any]:
    """Decode an image as grey (H, W) or in colour (H, W, 3), uint8 or uint16; `mode` is a flag of OpenCV."""
    import cv2

    if not data:
        raise DataError(f"{name}: the image file is empty. Copy it again.")
    if _is_truncated(data):
        raise DataError(f"{name}: the image file is truncated. Copy it again.")
    if Path(name).suffix.lower() in HEIF_EXTENSIONS:
        colour = _decode_heif(data, name)
        return colour if mode == cv2.IMREAD_COLOR else np.asarray(cv2.cvtColor(colour, cv2.COLOR_BGR2GRAY), np.uint8)
    flags = mode | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(_ignore_orientation(data), np.uint8), flags)
    except cv2.error as error:
        if is_out_of_memory(error):
            raise
        if "CV_IO_MAX_IMAGE" in str(error):
            remedy = "Set OPENCV_IO_MAX_IMAGE_PIXELS to read larger images."
            raise DataError(f"{name}: the image has more pixels than OpenCV's limit. {remedy}") from error
        image = None
    if image is None:
        raise DataError(f"{name}: OpenCV cannot decode the file. It is damaged or not an image.")
    if image.dtype not in (np.uint8, np.uint16):
        raise DataError(f"{name}: expected 8 or 16 bits per channel, got {image.dtype}. Convert the image first.")
    return np.asarray(image)


def as_grey(image: ImageSource) -> NDArray[np.uint8]:
    """Read an image file as 8-bit grey, or convert an image of Pillow or pixels to it, by the rules of `read_grey`.

    Colours become the grey values of a PNG file with the same pixels. Decoders of other formats round differently, by
    one grey level at most. Some files store more than the colours: JPEG contains its own grey channel, and for PNG with
    a gamma (chunk gAMA or sRGB) the luma is computed in linear light.

    >>> as_grey(np.zeros((480, 640, 3), np.uint8)).shape
    (480, 640)

    Args:
        image: An image file, an image of Pillow, or pixels as from `cv2.imread`: (H, W) grey, (H, W, 3) blue, green,
            red, or (H, W, 4) with transparency; uint8 or uint16.

    Returns:
        (H, W) uint8, at least one pixel.
    """
    if isinstance(image, str | Path):
        return read_grey(image)
    pixels = image if isinstance(image, np.ndarray) else _from_pillow(image)
    if pixels.ndim == 3 and pixels.shape[2] in (1, 3, 4):
        pixels = _to_luma(pixels)
    if pixels.ndim != 2:
        raise ShapeError(
            f"image: expected (H, W), or (H, W, 3) in the channel order of OpenCV, got {pixels.shape}. "
            "Channels come last."
        )
    if not pixels.size:
        raise ArgumentError(f"image: expected at least one pixel, got {pixels.shape[0]}×{pixels.shape[1]}.")
    return _to_8_bit(pixels, "image")


def as_mask(mask: ImageSource, size: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return a mask (H, W) uint8 that is zero where an image of this (height, width) is to be ignored.

    Args:
        mask: In one of the forms of `as_grey`, or (H, W) of any type. Values are not brightnesses: everything but zero
            counts, so that labels of 16 bits work as well.
        size: (height, width) of the image.
    """
    if isinstance(mask, str | Path):
        return decode_mask(_read_file(mask), str(mask), size)
    return _check_mask(mask if isinstance(mask, np.ndarray) and mask.ndim == 2 else as_grey(mask), "mask", size)


def _check_mask(pixels: NDArray[Any], name: str, size: tuple[int, ...]) -> NDArray[np.uint8]:
    check_shape(pixels, f"{size[0]} {size[1]}", name=name)
    return np.asarray(pixels != 0, np.uint8)


def as_colour(image: ImageSource) -> NDArray[np.uint8]:
    """Return an image in one of the forms that `as_grey` accepts in colour, to show it; grey images stay grey.

    Returns:
        (H, W, 3) uint8, as blue, green, red.
    """
    import cv2

    if isinstance(image, str | Path):
        return read_colour(image)
    pixels = image if isinstance(image, np.ndarray) else _from_pillow(image)
    if pixels.ndim == 3 and pixels.shape[2] in (3, 4):
        return _to_8_bit(np.ascontiguousarray(pixels[:, :, :3]), "image")
    return np.asarray(cv2.cvtColor(as_grey(pixels), cv2.COLOR_GRAY2BGR), np.uint8)


def list_images(folder: str | Path) -> list[Path]:
    """Return all image files of a folder and its subfolders, sorted by their relative path; see `walk_files`.

    They include links without a target, so that these are reported when they are read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder}: expected a folder of images, but it {fault}.")
    files = ((name, folder / name) for name in walk_files(folder) if is_image(name))
    names = (name for name, path in files if path.is_file() or not path.exists())
    return [folder / name for name in check_names(names, str(folder))]


def check_names(names: Iterable[str], folder: str) -> list[str]:
    """Return the sorted names of the images of a folder; refuse names that are not UTF-8, and a folder without any."""
    images = sorted(names)
    for name in images:
        # Names are stored in text files, Parquet and databases.
        if not name.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise DataError(f"{folder}/{name}: the file name is not UTF-8. Rename the image.")
    if not images:
        known = " ".join(sorted(EXTENSIONS))
        raise DataError(f"{folder}: expected images ({known}), but the folder contains none.")
    return images


def is_image(name: str) -> bool:
    """Return whether the extension of a file is that of an image."""
    return PurePosixPath(name).suffix.lower() in EXTENSIONS


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
    """Shrink an image (H, W) or (H, W, 3) to a longest side, if it is larger.

    Returns:
        The image, and the homography (3, 3) from its pixels to those of the original.
    """
    import cv2

    height, width = image.shape[:2]
    if max(height, width) <= longest_side:
        return image, np.eye(3)
    factor = longest_side / max(height, width)
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    x, y = width / size[0], height / size[1]
    # The outer corner of the first pixel is fixed, half a pixel from its centre.
    enlarge = np.array([[x, 0, (x - 1) / 2], [0, y, (y - 1) / 2], [0, 0, 1.0]])
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8), enlarge


def _is_truncated(data: bytes) -> bool:
    if data.startswith(_JPEG_START):
        return not _reaches_end_of_jpeg(data)
    # Decoders detect truncation of the other formats, whose headers contain the length.
    return data.startswith(_PNG_START) and not _reaches_end_of_png(data)


def _reaches_end_of_png(data: bytes) -> bool:
    """Follow the chunks to the end. OpenCV allocates any length that a chunk declares, up to 2 GB."""
    position = len(_PNG_START)
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position : position + 4], "big")
        if data[position + 4 : end] == _PNG_END:
            return True
        position = end
    return False


def _reaches_end_of_jpeg(data: bytes) -> bool:
    """Follow the markers to the end. An EXIF thumbnail contains an end marker of its own."""
    position = len(_JPEG_START)
    while marker := _JPEG_MARKER.search(data, position):
        if marker[1] == _JPEG_END:
            return True
        # The length includes its own two bytes. The next search skips coded pixels after a scan header.
        position = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")
    return False


def _ignore_orientation(data: bytes) -> bytes | bytearray:
    """Overwrite the orientation of a TIFF, which OpenCV applies despite IMREAD_IGNORE_ORIENTATION."""
    if not data.startswith(_TIFF_STARTS):
        return data
    order, changed = "<" if data.startswith(b"II") else ">", bytearray(data)
    # The decoder reports damage. A position may also exceed the integers of C.
    with suppress(struct.error, OverflowError):
        (version,) = struct.unpack_from(f"{order}H", data, 2)
        # Positions and counts are longer in BigTIFF.
        first, count, entry, value = ("8xQ", "Q", 20, 12) if version == _BIG_TIFF else ("4xI", "H", 12, 8)
        (directory,) = struct.unpack_from(order + first, data)
        (tags,) = struct.unpack_from(order + count, data, directory)
        start = directory + struct.calcsize(order + count)
        for position in range(start, start + entry * tags, entry):
            tag, kind = struct.unpack_from(f"{order}HH", data, position)
            if tag == _TIFF_ORIENTATION:
                struct.pack_into(order + ("I" if kind == _TIFF_LONG else "H"), changed, position + value, 1)
    return changed


def walk_files(folder: Path) -> Iterator[str]:
    """Yield the relative paths of all files of a folder and its subfolders, with slashes; enter every folder once.

    Links to folders are followed, except into a folder that is listed anyway.
    """
    root, entered, start = folder.resolve(), set[Path](), len(str(folder / "_")) - 1
    for here, subfolders, files in os.walk(folder, followlinks=True):
        prefix = "" if len(here) < start else f"{here[start:]}/".replace(os.sep, "/")
        yield from (f"{prefix}{name}" for name in files)
        for name in sorted(subfolders):
            link, target = Path(here, name), Path(here, name).resolve()
            # A link into the root, or to a folder that contains it, would list images twice or never end.
            repeated = link.is_symlink() and (target.is_relative_to(root) or root.is_relative_to(target))
            if repeated or target in entered:
                subfolders.remove(name)
            else:
                entered.add(target)


def _decode_heif(data: bytes, name: str) -> NDArray[np.uint8]:
    """Return the pixels (H, W, 3) of a HEIC file as blue, green, red."""
    try:
        import pillow_heif
    except ImportError as error:
        raise DataError(
            f"{name}: HEIC files need pillow-heif. Run `pip install 'doap[heif]'`, or convert the file to JPEG."
        ) from error
    try:
        colour = np.asarray(pillow_heif.open_heif(data).to_pillow().convert("RGB"))
    # libheif reports damage with several types of exceptions.
    except Exception as error:
        raise DataError(f"{name}: pillow-heif cannot decode the file ({error}). It is damaged or not HEIC.") from error
    return np.ascontiguousarray(colour[:, :, ::-1])


def _from_pillow(image: PillowImage) -> NDArray[Any]:
    """Return the pixels of an image of Pillow, with the bits that it has: grey, or (H, W, 3) as blue, green, red."""
    if not hasattr(image, "mode") or not hasattr(image, "convert"):
        raise ArgumentError(
            f"image: expected a file, an array or an image of Pillow, got {type(image).__name__}. "
            "Convert it to an array first."
        )
    if image.mode in ("RGB", "RGBA", "P", "CMYK", "YCbCr", "LAB", "HSV", "PA"):
        return np.asarray(image.convert("RGB"))[:, :, ::-1]
    deep = image.mode.startswith(("I", "F"))
    pixels: NDArray[Any] = np.asarray(image if deep else image.convert("L"))
    # Pillow may store 16 bits in 32.
    fits = pixels.dtype == np.int32 and pixels.size and 0 <= pixels.min() <= pixels.max() <= _MAX_16_BIT
    return pixels.astype(np.uint16) if fits else pixels


def _to_luma(pixels: NDArray[Any]) -> NDArray[Any]:
    """Convert (H, W, 1), (H, W, 3) or (H, W, 4) in OpenCV's channel order to (H, W), as libpng does for files."""
    if pixels.shape[2] == 1 or pixels.dtype not in (np.uint8, np.uint16):
        return pixels[:, :, 0]
    sums = sum(weight * pixels[:, :, channel].astype(np.uint32) for channel, weight in enumerate(_LUMA))
    # libpng only rounds 16 bits, and truncates 8.
    half = 1 << 14 if pixels.dtype == np.uint16 else 0
    return np.asarray((sums + half) >> 15, pixels.dtype)


def _to_8_bit(image: NDArray[Any], name: str | Path) -> NDArray[np.uint8]:
    """Convert uint8 or uint16 pixels (H, W) or (H, W, 3) of an image to uint8."""
    if image.dtype == np.uint8:
        return image.astype(np.uint8, copy=False)
    if image.dtype != np.uint16:
        raise ArgumentError(
            f"{name}: expected uint8 or uint16, got {image.dtype}. Scale the values to 0…255 and convert them to uint8."
        )
    low, high = _percentiles(image)
    if high - low <= _MAX_16_BIT // 4:
        level = logging.WARNING if next(_stretched) == 0 else logging.DEBUG
        _LOG.log(level, "%s: the 16-bit values only span %d to %d and are stretched to 8 bits.", name, low, high)
        # At most one grey level per stored level, so that the noise of a flat image stays invisible.
        stretched = (image.astype(np.float32) - low) * (255 / max(high - low, 255))
        return np.asarray(np.rint(stretched.clip(0, 255)), np.uint8)
    # 257 = 65535 / 255. Adding half of it for rounding needs more than 16 bits.
    return np.asarray((image.astype(np.uint32) + 128) // 257, np.uint8)


def _percentiles(image: NDArray[np.uint16]) -> tuple[int, int]:
    """Return the 0.1 and the 99.9 percentile; single hot or dead pixels do not count."""
    below = np.bincount(image.ravel(), minlength=_MAX_16_BIT + 1).cumsum()
    low, high = np.searchsorted(below, [0.001 * image.size, 0.999 * image.size])
    return int(low), int(high)
