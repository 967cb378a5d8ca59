"""Image pairs with poses: each published format gives the same cameras, poses and overlaps."""

from __future__ import annotations

import h5py
import numpy as np
import pycolmap
import pytest

from doap._support.errors import DataError
from doap.evaluation.posed_pairs import read_posed_pairs
from oracles.posed_scene import POINTS, PosedScene, intrinsics

PAIRS_OF_THREE = ["0-1", "0-2", "1-2"]


@pytest.fixture
def scene():
    return PosedScene(3)


def assert_true(pairs, scene):
    """Compare pairs with the poses of the scene: a point seen by camera 0 moves to where camera 1 sees it."""
    for pair in pairs:
        first, second = (scene.poses[int(path.stem)] for path in pair.paths)
        seen0 = scene.points @ first.rotation.T + first.translation
        seen1 = scene.points @ second.rotation.T + second.translation
        np.testing.assert_allclose(seen0 @ pair.pose.rotation.T + pair.pose.translation, seen1, atol=1e-6)
        for camera, path, seen in zip(pair.cameras, pair.paths, (seen0, seen1), strict=True):
            normalised = camera.normalise(scene.positions[int(path.stem)])
            np.testing.assert_allclose(normalised, seen[:, :2] / seen[:, 2:], atol=1e-6)
            assert path.is_file()


def numbers(*arrays):
    return " ".join(f"{value:.17g}" for array in arrays for value in np.ravel(array))


def write_list(folder, scene, line):
    """Write images/ and pairs.txt with one line for each pair."""
    scene.write_images(folder / "images" / "0015")
    lines = [line(first, second) for first, second in ((0, 1), (0, 2), (1, 2))]
    file = folder / "pairs.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def superglue_line(scene, first, second):
    matrix, relative = intrinsics().matrix, scene.poses[second].relative_to(scene.poses[first])
    transformation = np.eye(4)
    transformation[:3, :3], transformation[:3, 3] = relative.rotation, relative.translation
    return f"0015/{first}.png 0015/{second}.png 0 0 {numbers(matrix, matrix, transformation)}"


def glue_factory_line(scene, first, second):
    matrix, relative = intrinsics().matrix, scene.poses[second].relative_to(scene.poses[first])
    values = numbers(matrix, matrix, relative.rotation, relative.translation)
    return f"0015/{first}.png 0015/{second}.png {values}"


def test_colmap_models_give_pairs_with_the_share_of_common_points(tmp_path, scene):
    seen = [np.arange(POINTS), np.arange(60), np.arange(30, POINTS)]
    scene.write_colmap(tmp_path / "arc", seen)
    pairs = read_posed_pairs(tmp_path)
    assert [pair.name for pair in pairs] == PAIRS_OF_THREE
    assert {pair.scene for pair in pairs} == {"arc"}
    assert [pair.overlap for pair in pairs] == pytest.approx([1.0, 1.0, 0.5])
    assert_true(pairs, scene)


def test_images_without_a_common_point_are_no_pair(tmp_path, scene):
    seen = [np.arange(POINTS), np.arange(40), np.arange(50, POINTS)]
    scene.write_colmap(tmp_path / "arc", seen)
    assert [pair.name for pair in read_posed_pairs(tmp_path)] == ["0-1", "0-2"]


@pytest.mark.parametrize(
    ("model", "parameters", "distortion"),
    [
        ("SIMPLE_PINHOLE", [150, 80, 60], ()),
        ("PINHOLE", [150, 150, 80, 60], ()),
        ("SIMPLE_RADIAL", [150, 80, 60, 0.1], (0.1, 0, 0, 0)),
        ("RADIAL", [150, 80, 60, 0.1, -0.02], (0.1, -0.02, 0, 0)),
        ("OPENCV", [150, 150, 80, 60, 0.1, -0.02, 0.003, 0.004], (0.1, -0.02, 0.003, 0.004)),
    ],
)
def test_camera_models_of_colmap_normalise_as_colmap_does(tmp_path, scene, model, parameters, distortion):
    folder = scene.write_colmap(tmp_path / "arc")
    reconstruction = pycolmap.Reconstruction(folder / "sparse")
    camera = pycolmap.Camera(model=model, width=160, height=120, params=parameters, camera_id=1)
    reconstruction.cameras[1].model = camera.model
    reconstruction.cameras[1].params = parameters
    reconstruction.write(folder / "sparse")
    read = read_posed_pairs(tmp_path)[0].cameras[0]
    assert read.distortion == distortion
    pixels = np.array([[10.0, 20], [80, 60], [150, 100]])
    np.testing.assert_allclose(read.normalise(pixels - 0.5), camera.cam_from_img(pixels), atol=1e-5)


@pytest.mark.parametrize("line", [superglue_line, glue_factory_line])
def test_pair_lists_of_megadepth_1500_are_read(tmp_path, scene, line):
    file = write_list(tmp_path, scene, lambda first, second: line(scene, first, second))
    for root in (file, tmp_path):
        pairs = read_posed_pairs(root)
        assert [pair.name for pair in pairs] == PAIRS_OF_THREE
        assert {pair.scene for pair in pairs} == {"0015"}
        assert {pair.overlap for pair in pairs} == {None}
        assert_true(pairs, scene)


def test_phototourism_pairs_take_the_highest_list_that_has_them(tmp_path, scene):
    folder = tmp_path / "reichstag" / "set_100"
    scene.write_images(folder / "images")
    for name in ("calibration", "new-vis-pairs"):
        (folder / name).mkdir()
    for number, pose in enumerate(scene.poses):
        with h5py.File(folder / "calibration" / f"calibration_{number}.h5", "w") as file:
            file["K"], file["R"], file["T"] = intrinsics().matrix, pose.rotation, pose.translation[None]
    np.save(folder / "new-vis-pairs" / "keys-th-0.1.npy", np.array(PAIRS_OF_THREE))
    np.save(folder / "new-vis-pairs" / "keys-th-0.2.npy", np.array(["0-1", "1-2"]))
    np.save(folder / "new-vis-pairs" / "keys-th-0.5.npy", np.array(["1-2"]))
    pairs = read_posed_pairs(tmp_path)
    assert {pair.name: pair.overlap for pair in pairs} == {"0-1": 0.2, "0-2": 0.1, "1-2": 0.5}
    assert {pair.scene for pair in pairs} == {"reichstag"}
    assert_true(pairs, scene)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg b.jpg 1 2 3\n", "line 1: expected 36 numbers"),
        ("\na.jpg b.jpg 1 2 x\n", "line 2: expected numbers"),
        ("a.jpg\n", "line 1: expected two names"),
        ("a.jpg ../b.jpg 1 2 3\n", "line 1: expected names of images inside their folder, got '../b.jpg'"),
        ("/a.jpg b.jpg 1 2 3\n", "line 1: expected names of images inside their folder, got '/a.jpg'"),
    ],
)
def test_damaged_pair_lists_are_named_with_the_line(tmp_path, text, message):
    file = tmp_path / "pairs.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_posed_pairs(file)


def test_missing_image_of_phototourism_is_named(tmp_path, scene):
    folder = tmp_path / "reichstag" / "set_100"
    for name in ("calibration", "new-vis-pairs", "images"):
        (folder / name).mkdir(parents=True)
    for number, pose in enumerate(scene.poses):
        with h5py.File(folder / "calibration" / f"calibration_{number}.h5", "w") as file:
            file["K"], file["R"], file["T"] = intrinsics().matrix, pose.rotation, pose.translation
    np.save(folder / "new-vis-pairs" / "keys-th-0.1.npy", np.array(["0-1"]))
    with pytest.raises(DataError, match="the image 0 is missing"):
        read_posed_pairs(tmp_path)


def test_names_in_lists_of_phototourism_do_not_lead_out_of_its_folder(tmp_path):
    lists = tmp_path / "reichstag" / "set_100" / "new-vis-pairs"
    lists.mkdir(parents=True)
    (lists.parent / "calibration").mkdir()
    np.save(lists / "keys-th-0.1.npy", np.array(["../0-1"]))
    with pytest.raises(DataError, match=r"new-vis-pairs: expected names of images inside their folder, got '\.\./0'"):
        read_posed_pairs(tmp_path)


def test_a_folder_without_pairs_lists_the_formats(tmp_path):
    with pytest.raises(DataError, match=r"COLMAP models.*MegaDepth-1500.*IMC Phototourism"):
        read_posed_pairs(tmp_path)
