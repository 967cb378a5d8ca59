"""Sizes of image files, read from their headers without decoding the pixels."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

Size = tuple[int, int]
"""(height, width) in pixels."""

_JPEG_SEGMENT = re.compile(rb"\xff([^\x00\xff\xd0-\xd9])", re.DOTALL)
# SOF0…SOF15 except DHT, JPG and DAC.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PNM = re.compile(rb"P[1-6](?:\s|#[^\n]*\n)+(\d{1,10})(?:\s|#[^\n]*\n)+(\d{1,10})\s")
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_LONG = 256, 257, 4
# Tags of a TIFF directory that are examined; the size is among the first.
_TIFF_TAGS = 64


def declared_size(data: bytes) -> Size | None:
    """Return the size that the header of an image file declares; None for another format or a damaged header."""
    for start, read in _FORMATS.items():
        if data.startswith(start):
            try:
                return read(data)
            except (struct.error, IndexError):
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
    order = "<" if data.startswith(b"II") else ">"
    (directory,) = struct.unpack_from(order + "I", data, 4)
    (tags,) = struct.unpack_from(order + "H", data, directory)
    found = {}
    for entry in range(directory + 2, directory + 2 + 12 * min(tags, _TIFF_TAGS), 12):
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        (found[tag],) = struct.unpack_from(order + ("I" if kind == _TIFF_LONG else "H"), data, entry + 8)
    if _TIFF_HEIGHT not in found or _TIFF_WIDTH not in found:
        return None
    return found[_TIFF_HEIGHT], found[_TIFF_WIDTH]


_FORMATS: dict[bytes, Callable[[bytes], Size | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"\xff\xd8": _jpeg,
    b"BM": _bmp,
    b"RIFF": _webp,
    b"II*\x00": _tiff,
    b"MM\x00*": _tiff,
    **{f"P{number}".encode(): _pnm for number in range(1, 7)},
}
