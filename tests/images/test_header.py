"""Sizes declared by image headers, and the limit of pixels."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from doap._support.errors import ArgumentError, DataError
from doap.images import read_grey
from doap.images.header import declared_size


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("extension", ["png", "jpg", "bmp", "tif", "webp", "ppm"])
def test_the_declared_size_is_that_of_the_decoded_image(tmp_path, extension, mode):
    path = tmp_path / f"a.{extension}"
    Image.fromarray(np.zeros((40, 60), np.uint8)).convert(mode).save(path)
    assert declared_size(path.read_bytes()) == read_grey(path).shape == (40, 60)


@pytest.mark.parametrize("options", [{"lossless": True}, {"exif": b"Exif\x00\x00"}])
def test_the_other_kinds_of_webp_declare_their_size(tmp_path, options):
    Image.fromarray(np.zeros((40, 60), np.uint8)).convert("RGB").save(tmp_path / "a.webp", **options)
    assert declared_size((tmp_path / "a.webp").read_bytes()) == (40, 60)


@pytest.mark.parametrize("extension", ["png", "jpg", "bmp", "tif", "webp", "ppm"])
def test_any_beginning_of_a_file_has_a_size_or_none(tmp_path, extension):
    path = tmp_path / f"a.{extension}"
    Image.fromarray(np.zeros((40, 60), np.uint8)).convert("RGB").save(path)
    data = path.read_bytes()
    assert {declared_size(data[:end]) for end in range(min(len(data), 700))} <= {None, (40, 60), (0, 0), (1, 1)}


def write_bomb(path, side):
    """Write a PNG with a large declared size and little data."""
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0),
        b"IDAT": zlib.compress(bytes(10)),
        b"IEND": b"",
    }
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in chunks.items():
        data += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("side", [24_000, 2**31 - 1])
def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(tmp_path, side):
    with pytest.raises(DataError, match=r"expected at most 536,870,912 pixels, got .* Set DOAP_MAX_PIXELS"):
        read_grey(write_bomb(tmp_path / "bomb.png", side))


def test_the_limit_of_pixels_can_be_set(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((40, 60), np.uint8)).save(path)
    monkeypatch.setenv("DOAP_MAX_PIXELS", "2400")
    assert read_grey(path).shape == (40, 60)
    monkeypatch.setenv("DOAP_MAX_PIXELS", "2399")
    with pytest.raises(DataError, match="expected at most 2,399 pixels, got 60 × 40"):
        read_grey(path)
    monkeypatch.setenv("DOAP_MAX_PIXELS", "many")
    with pytest.raises(ArgumentError, match="DOAP_MAX_PIXELS: expected a number"):
        read_grey(path)


def test_a_chunk_of_a_png_is_not_longer_than_the_file(tmp_path):
    """OpenCV allocates the declared length, here 2 GB."""
    Image.fromarray(np.zeros((40, 60), np.uint8)).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    start = data.index(b"IDAT") - 4
    (tmp_path / "a.png").write_bytes(data[:start] + b"\x7f\xff\xff\x00" + data[start + 4 :])
    with pytest.raises(DataError, match=r"a\.png: the image file is truncated"):
        read_grey(tmp_path / "a.png")
