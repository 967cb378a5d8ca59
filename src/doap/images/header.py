"""Headers of image files: the size, read without decoding the pixels, and the orientation of TIFF."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

Size = tuple[int, int]
"""(height, width) in pixels."""

# Headers end before this byte, except in unusual files.
_HEADER_BYTES = 1 << 20
_JPEG_SEGMENT = re.compile(rb"\xff([^\x00\xff\xd0-\xd9])", re.DOTALL)
# SOF0…SOF15 except DHT, JPG and DAC.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PNM = re.compile(rb"P[1-6](?:\s|#[^\n]*\n)+(\d{1,10})(?:\s|#[^\n]*\n)+(\d{1,10})\s")
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_ORIENTATION = 256, 257, 274
_TIFF_LONG, _BIG_TIFF = 4, 43
# libtiff refuses a directory with more tags.
_TIFF_TAGS = 4096
# A position may lie outside the file, or exceed the integers of C.
_DAMAGED = struct.error, IndexError, OverflowError


def read_size(path: Path) -> Size | None:
    """Return the size that the header of an image file declares; None if it is not among the first bytes."""
    try:
        with path.open("rb") as file:
            return declared_size(file.read(_HEADER_BYTES))
    except OSError:
        return None


def declared_size(data: bytes) -> Size | None:
    """Return the size that the header of an image file declares; None for another format or a damaged header."""
    for start, read in _FORMATS.items():
        if data.startswith(start):
            try:
                return read(data)
            except _DAMAGED:
                return None
    return None


def _png(data: bytes) -> Size:
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _jpeg(data: bytes) -> Size | None:
    position = 2
    while segment := _JPEG_SEGMENT.search(data, position):
        if segment[1][0] in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, segment.end() + 3)
            return height, width
        position = segment.end() + int.from_bytes(data[segment.end() : segment.end() + 2], "big")
    return None


def _bmp(data: bytes) -> Size:
    width, height = struct.unpack_from("<ii", data, 18)
    return abs(height), abs(width)


def _pnm(data: bytes) -> Size | None:
    found = _PNM.match(data[:4096])
    return (int(found[2]), int(found[1])) if found else None


def _webp(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[27:30], "little"), 1 + int.from_bytes(data[24:27], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return height & 0x3FFF, width & 0x3FFF


def _tiff(data: bytes) -> Size | None:
    found: dict[int, int] = {}
    for tag, layout, position in _tiff_tags(data):
        # libtiff ignores repeated tags.
        found.setdefault(tag, *struct.unpack_from(layout, data, position))
    if _TIFF_HEIGHT not in found or _TIFF_WIDTH not in found:
        return None
    return found[_TIFF_HEIGHT], found[_TIFF_WIDTH]


def ignore_orientation(data: bytes) -> bytes | bytearray:
    """Return an image file that OpenCV decodes as stored with IMREAD_IGNORE_ORIENTATION.

    For TIFF, OpenCV applies the orientation despite this flag, so the tag is overwritten.
    """
    if not data.startswith(_TIFF_STARTS):
        return data
    changed = bytearray(data)
    # The decoder reports damage.
    with suppress(*_DAMAGED):
        for tag, layout, position in _tiff_tags(data):
            if tag == _TIFF_ORIENTATION:
                struct.pack_into(layout, changed, position, 1)
    return changed


def _tiff_tags(data: bytes) -> Iterator[tuple[int, str, int]]:
    """Yield the tags of the first page, with the layout and the position of their values."""
    order = "<" if data.startswith(b"II") else ">"
    (version,) = struct.unpack_from(order + "H", data, 2)
    # Positions and counts in BigTIFF are longer.
    first, number, entry, value = ("8xQ", "Q", 20, 12) if version == _BIG_TIFF else ("4xI", "H", 12, 8)
    (directory,) = struct.unpack_from(order + first, data)
    (tags,) = struct.unpack_from(order + number, data, directory)
    start = directory + struct.calcsize(order + number)
    for position in range(start, start + entry * min(tags, _TIFF_TAGS), entry):
        tag, kind = struct.unpack_from(order + "HH", data, position)
        yield tag, order + ("I" if kind == _TIFF_LONG else "H"), position + value


_TIFF_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_FORMATS: dict[bytes, Callable[[bytes], Size | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"\xff\xd8": _jpeg,
    b"BM": _bmp,
    b"RIFF": _webp,
    **dict.fromkeys(_TIFF_STARTS, _tiff),
    **{f"P{number}".encode(): _pnm for number in range(1, 7)},
}
