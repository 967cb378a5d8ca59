"""Reading images: every format becomes 8-bit grey, or raises an error of one line."""

import struct
import subprocess
import sys
import zlib
from itertools import count

import cv2
import numpy as np
import pytest
from PIL import Image

from doap._support.errors import ArgumentError, DataError
from doap.images import as_colour, as_grey, list_images, read_grey
from doap.images.read import as_mask

EXIF_ORIENTATION, ROTATED_CLOCKWISE = 0x0112, 6


@pytest.fixture
def grey():
    """A smooth image (40, 60) that JPEG preserves."""
    y, x = np.mgrid[:40, :60]
    return np.round(127 + 80 * np.sin(x / 9) + 40 * np.cos(y / 7)).astype(np.uint8)


@pytest.mark.parametrize("extension", ["png", "tif", "bmp", "pgm", "PNG"])
def test_a_grey_file_is_read_unchanged(tmp_path, grey, extension):
    path = tmp_path / f"image.{extension}"
    Image.fromarray(grey).save(path)
    assert np.array_equal(read_grey(path), grey)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "1"])
def test_other_modes_give_the_grey_of_pillow(tmp_path, grey, mode):
    path = tmp_path / "image.png"
    Image.fromarray(grey).convert(mode).save(path)
    expected = np.asarray(Image.open(path).convert("L"))
    assert np.abs(read_grey(path).astype(int) - expected).max() <= 1


@pytest.mark.parametrize("extension", ["png", "tif"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path, grey, extension, channels):
    path = tmp_path / f"image.{extension}"
    wide = np.repeat((grey.astype(np.uint16) * 257)[..., None], channels, axis=2)
    cv2.imwrite(str(path), wide)
    image = read_grey(path)
    assert image.dtype == np.uint8
    assert np.array_equal(image, grey)


def test_sixteen_bits_are_rounded(tmp_path):
    path = tmp_path / "image.png"
    values = np.arange(0, 65536, 7, dtype=np.uint16)[None]
    cv2.imwrite(str(path), values)
    assert np.array_equal(read_grey(path), np.rint(values / 257))


@pytest.mark.parametrize("extension", ["jpg", "png"])
def test_exif_orientation_is_ignored(tmp_path, grey, extension):
    path, exif = tmp_path / f"image.{extension}", Image.Exif()
    exif[EXIF_ORIENTATION] = ROTATED_CLOCKWISE
    Image.fromarray(grey).save(path)
    expected = read_grey(path)
    Image.fromarray(grey).save(path, exif=exif)
    assert np.array_equal(read_grey(path), expected)


def save_oriented(path, image, orientation, **options):
    """Write an image with an orientation tag; the pixels are stored as they are."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    tag = {"tiffinfo": exif} if path.suffix == ".tif" else {"exif": exif}
    Image.fromarray(image).save(path, **tag, **options)


@pytest.mark.parametrize("orientation", [1, 2, 6, 8])
@pytest.mark.parametrize("options", [{}, {"compression": "tiff_lzw"}, {"big_tiff": True}], ids=str)
@pytest.mark.parametrize("kind", ["grey", "16 bits", "colour"])
def test_orientation_of_tiff_is_ignored(tmp_path, grey, orientation, options, kind):
    stored = {"grey": grey, "16 bits": 257 * grey.astype(np.uint16), "colour": np.dstack([grey, grey, grey])}[kind]
    save_oriented(path := tmp_path / "image.tif", stored, orientation, **options)
    np.testing.assert_array_equal(read_grey(path), grey)
    np.testing.assert_array_equal(as_colour(path), np.dstack([grey, grey, grey]))
    np.testing.assert_array_equal(as_mask(path, grey.shape), grey != 0)


def test_orientation_of_tiff_is_ignored_in_both_byte_orders_and_with_more_pages(tmp_path, grey):
    path, page = tmp_path / "image.tif", Image.fromarray(grey)
    page.save(
        path, tiffinfo={EXIF_ORIENTATION: ROTATED_CLOCKWISE}, save_all=True, append_images=[Image.new("L", (9, 9))]
    )
    np.testing.assert_array_equal(read_grey(path), grey)
    path.write_bytes(big_endian_tiff(grey))
    np.testing.assert_array_equal(read_grey(path), grey)


def big_endian_tiff(grey):
    """Return a grey TIFF of one strip that is to be rotated clockwise."""
    height, width = grey.shape
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, EXIF_ORIENTATION: ROTATED_CLOCKWISE, 277: 1}
    tags |= {278: height, 279: grey.size}
    header = b"MM\0*" + struct.pack(">I", 8 + grey.size)
    entries = b"".join(struct.pack(">HHIHxx", tag, 3, 1, value) for tag, value in tags.items())
    return header + grey.tobytes() + struct.pack(">H", len(tags)) + entries + bytes(4)


def test_tiff_is_read_as_by_colmap(tmp_path, grey):
    pycolmap = pytest.importorskip("pycolmap")
    for orientation in range(1, 9):
        save_oriented(path := tmp_path / "image.tif", grey, orientation)
        np.testing.assert_array_equal(read_grey(path), pycolmap.Bitmap.read(path, False).to_array().squeeze())


@pytest.mark.parametrize("extension", ["jpg", "png", "tif", "bmp", "webp", "ppm"])
@pytest.mark.parametrize("missing", [0.5, 0.1, 0])
def test_truncated_file_is_refused(tmp_path, grey, extension, missing):
    path = tmp_path / f"image.{extension}"
    Image.fromarray(grey).convert("RGB").save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - max(2, int(missing * len(data)))])
    with pytest.raises(DataError):
        read_grey(path)


def test_thumbnail_in_a_truncated_jpeg_does_not_hide_the_truncation(tmp_path, grey):
    path, thumbnail = tmp_path / "image.jpg", tmp_path / "thumbnail.jpg"
    Image.fromarray(grey).save(thumbnail)
    Image.fromarray(grey).save(path, exif=b"Exif\x00\x00" + thumbnail.read_bytes())
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError):
        read_grey(path)


@pytest.mark.parametrize("options", [{"progressive": True}, {"restart_marker_rows": 1}])
def test_a_complete_jpeg_with_trailing_bytes_is_read(tmp_path, grey, options):
    path = tmp_path / "image.jpg"
    Image.fromarray(grey).save(path, **options)
    path.write_bytes(path.read_bytes() + b"\x00" * 100)
    assert read_grey(path).shape == grey.shape


@pytest.mark.parametrize("content", [b"", b"not an image", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"P5 9 9"])
def test_a_file_that_is_not_an_image_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_grey(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def write_png(path, side, declared_length=10):
    """Write a PNG with a large declared size and little data."""
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0),
        b"IDAT": zlib.compress(bytes(10)),
        b"IEND": b"",
    }
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in chunks.items():
        length = declared_length if name == b"IDAT" and declared_length else len(content)
        data += struct.pack(">I", length) + name + content + struct.pack(">I", zlib.crc32(name + content))
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("side", "length"), [(40_000, None), (2**31 - 1, None), (40, 0x7FFFFF00)])
def test_a_declared_size_is_not_allocated(tmp_path, side, length):
    """OpenCV would allocate the length of a chunk, here 2 GB."""
    write_png(tmp_path / "bomb.png", side, length)
    program = (
        "import resource, sys; from doap.images import read_grey\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "try: read_grey(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "bomb.png"], capture_output=True, text=True)
    assert done.stdout == "DataError\n"


def test_missing_files_folders_and_floats_are_refused(tmp_path):
    cv2.imwrite(str(tmp_path / "depth.tif"), np.zeros((4, 5), np.float32))
    for path in (tmp_path / "none.png", tmp_path, tmp_path / "depth.tif"):
        with pytest.raises(DataError):
            read_grey(path)


def test_images_are_listed_recursively_and_sorted_by_path(tmp_path):
    names = ["b.JPG", "a/z.png", "a/b/c.Tiff", "a.webp", "c.pgm"]
    for name in [*names, "notes.txt", "a/jpg"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    assert [path.relative_to(tmp_path).as_posix() for path in list_images(tmp_path)] == sorted(names)


def test_a_missing_folder_or_one_without_images_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()
    for folder in (tmp_path, tmp_path / "none", tmp_path / "notes.txt"):
        with pytest.raises(DataError):
            list_images(folder)


@pytest.fixture
def nothing_stretched(monkeypatch):
    """Forget that an image of this process was stretched, because only the first one is reported."""
    monkeypatch.setattr("doap.images.read._stretched", count())


@pytest.mark.parametrize(("offset", "bits"), [(0, 12), (0, 14), (21000, 11)], ids=["12 bits", "14 bits", "thermal"])
def test_narrow_range_of_16_bits_is_stretched_and_reported_once(
    tmp_path, grey, caplog, nothing_stretched, offset, bits
):
    path = tmp_path / "image.tif"
    shade = (grey - grey.min()) / (grey.max() - grey.min())
    cv2.imwrite(str(path), (offset + shade * (2**bits - 1)).astype(np.uint16))
    for _ in range(2):
        assert np.abs(read_grey(path) - 255 * shade).max() <= 2
    (record,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert str(path) in record.getMessage()
    assert f"span {offset} to {offset + 2**bits - 1}" in record.getMessage()


def test_hot_and_dead_pixels_do_not_hide_a_narrow_range(tmp_path):
    path = tmp_path / "image.png"
    values = np.tile(np.arange(1000, 3000, dtype=np.uint16), (10, 1))
    values[0, 0], values[5, 5] = 0, 65535
    cv2.imwrite(str(path), values)
    image = read_grey(path).astype(int)
    assert (image[0, 0], image[5, 5]) == (0, 255)
    assert np.abs(image[1] - np.linspace(0, 255, 2000)).max() <= 2


def test_noise_of_a_flat_16_bit_image_is_not_amplified(tmp_path):
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), np.random.default_rng(0).integers(2000, 2004, (50, 50), np.uint16))
    assert np.ptp(read_grey(path)) <= 3


def test_pillow_images_are_converted_as_their_files_are_read(tmp_path, grey):
    for mode in ("L", "RGB", "RGBA", "LA", "P", "1", "CMYK"):
        path, image = tmp_path / f"{mode}.tif", Image.fromarray(grey).convert(mode)
        image.save(path)
        assert np.abs(as_grey(image).astype(int) - read_grey(path)).max() <= 1, mode


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_pillow_images_of_16_bits_are_scaled_not_clipped(grey, dtype):
    assert np.array_equal(as_grey(Image.fromarray((257 * grey.astype(np.uint16)).astype(dtype))), grey)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_colour_arrays_have_the_grey_of_a_png_with_the_same_pixels(tmp_path, dtype):
    path = tmp_path / "image.png"
    colour = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (200, 300, 3), dtype, endpoint=True)
    cv2.imwrite(str(path), colour)
    with_alpha = np.dstack([colour, colour[..., :1]])
    for image in (cv2.imread(str(path), cv2.IMREAD_UNCHANGED), with_alpha, colour[::-1][::-1]):
        np.testing.assert_array_equal(as_grey(image), read_grey(path))


@pytest.mark.parametrize("image", [Image.new("F", (9, 9)), Image.fromarray(np.full((9, 9), -1, np.int32))])
def test_pillow_images_of_other_numbers_are_refused(image):
    with pytest.raises(ArgumentError):
        as_grey(image)


def test_heic_is_read_with_the_decoder(tmp_path, grey):
    heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "photo.heic"
    heif.from_pillow(Image.fromarray(grey).convert("RGB")).save(path, quality=95)
    assert np.abs(read_grey(path).astype(int) - grey).mean() < 2
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError):
        read_grey(path)


def listed(folder):
    return [path.relative_to(folder).as_posix() for path in list_images(folder)]


def test_links_to_folders_are_followed(tmp_path):
    photos, elsewhere = tmp_path / "photos", tmp_path / "elsewhere" / "deep"
    photos.mkdir()
    elsewhere.mkdir(parents=True)
    (elsewhere / "a.jpg").touch()
    (photos / "link").symlink_to(elsewhere.parent)
    assert listed(photos) == ["link/deep/a.jpg"]
    assert listed(photos / "link") == ["deep/a.jpg"]


def test_links_without_a_target_are_listed_and_cannot_be_read(tmp_path):
    (tmp_path / "a.jpg").symlink_to(tmp_path / "none.jpg")
    (tmp_path / "b.png").symlink_to(tmp_path / "b.png")
    assert listed(tmp_path) == ["a.jpg", "b.png"]
    for path in list_images(tmp_path):
        with pytest.raises(DataError):
            read_grey(path)


def test_links_that_loop_or_repeat_a_folder_are_not_followed(tmp_path):
    photos, elsewhere = tmp_path / "top" / "photos", tmp_path / "elsewhere"
    (photos / "real").mkdir(parents=True)
    elsewhere.mkdir()
    for folder in (photos, photos / "real", elsewhere):
        (folder / "a.jpg").touch()
    (photos / "again").symlink_to(photos / "real")
    (photos / "self").symlink_to(photos)
    (photos / "real" / "parent").symlink_to(photos.parent)
    (elsewhere / "back").symlink_to(photos)
    (elsewhere / "loop").symlink_to(elsewhere)
    (photos / "one").symlink_to(elsewhere)
    (photos / "two").symlink_to(elsewhere)
    (photos / "broken").symlink_to(tmp_path / "none")
    assert listed(photos) == ["a.jpg", "one/a.jpg", "real/a.jpg"]
