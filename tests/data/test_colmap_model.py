"""Damaged COLMAP models, which can make pycolmap hang, are refused."""

import shutil
import struct

import numpy as np
import pytest

from doap._support import processes
from doap._support.errors import DataError
from doap.data.colmap_model import open_model
from oracles.plane_scene import write_scene

pytest.importorskip("pycolmap")
# From the beginning of a point to its track.
POINT = struct.calcsize("<Q3d3x8x")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    points = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    write_scene(folder, np.column_stack([points, np.zeros(40)]))
    return folder / "sparse"


@pytest.fixture
def model(original, tmp_path):
    return shutil.copytree(original, tmp_path / "sparse")


def patch(path, position, content):
    data = bytearray(path.read_bytes())
    data[position : position + len(content)] = content
    path.write_bytes(data)


def test_names_in_a_text_model_are_utf8(model, tmp_path):
    reconstruction = open_model(model)
    name = next(iter(reconstruction.images.values())).name.encode()
    text = tmp_path / "text"
    text.mkdir()
    reconstruction.write_text(text)
    assert open_model(text).num_points3D() == 40
    images = text / "images.txt"
    images.write_bytes(images.read_bytes().replace(name, b"\xff" + name[1:]))
    with pytest.raises(DataError):
        open_model(text)


@pytest.mark.parametrize(("name", "text"), [("../1.png", False), ("a/../../1.png", True), ("/1.png", False)])
def test_names_that_lead_out_of_the_folder_of_images_are_refused(model, tmp_path, name, text):
    reconstruction = open_model(model)
    next(iter(reconstruction.images.values())).name = name
    (reconstruction.write_text if text else reconstruction.write)(model)
    if text:
        for binary in model.glob("*.bin"):
            binary.unlink()
    with pytest.raises(DataError):
        open_model(model)


HUGE = struct.pack("<Q", 1 << 60)
NAN = struct.pack("<d", np.nan)


@pytest.fixture
def little_time(monkeypatch):
    monkeypatch.setattr(processes, "_SECONDS", 3)


@pytest.mark.parametrize(
    ("file", "position", "content"),
    [
        ("points3D", 8 + POINT, HUGE),
        ("points3D", 8 + 8, NAN),
        ("points3D", 8 + POINT + 8, b"\xff\xff\xff\x7f"),
        ("points3D", 8 + POINT + 12, b"\xff\xff\xff\x7f"),
        ("images", 0, HUGE),
        ("images", 8 + 4 + 56, b"\xff\xff"),
        ("cameras", 8 + 4, b"\xff\xff\xff\x7f"),
        ("frames", 0, HUGE),
        ("frames", 8 + 8, NAN),
    ],
)
@pytest.mark.usefixtures("little_time")
def test_a_wrong_count_or_reference_is_refused(model, file, position, content):
    patch(model / f"{file}.bin", position, content)
    with pytest.raises(DataError):
        open_model(model)


@pytest.mark.parametrize(
    ("file", "left"),
    [*((name, 0.5) for name in ("points3D", "images", "cameras", "rigs")), ("frames", 0), ("frames", 1)],
)
@pytest.mark.usefixtures("little_time")
def test_a_truncated_file_is_refused(model, file, left):
    path = model / f"{file}.bin"
    data = path.read_bytes()
    path.write_bytes(data[: int(left * (len(data) - 1))])
    with pytest.raises(DataError):
        open_model(model)


def test_an_image_does_not_observe_a_missing_point(model):
    path = model / "points3D.bin"
    data = path.read_bytes()
    (count,) = struct.unpack_from("<Q", data)
    path.write_bytes(struct.pack("<Q", count - 1) + data[8 : 8 + (len(data) - 8) // count * (count - 1)])
    with pytest.raises(DataError):
        open_model(model)


def test_a_full_temporary_disk_is_named(model):
    pytest.importorskip("resource")
    from oracles.full_disk import full_disk

    with full_disk(), pytest.raises(DataError):
        open_model(model)
