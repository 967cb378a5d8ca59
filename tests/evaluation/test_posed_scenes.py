"""Scenes and pairs with poses: each published format gives the same cameras, poses and overlaps."""

import numpy as np
import pycolmap
import pytest

from doap._support.errors import DataError
from doap.evaluation.posed_scenes import read_posed_pairs, read_posed_scenes
from oracles import corner_scene
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


def test_a_list_of_pairs_replaces_those_that_share_points(tmp_path, scene):
    scene.write_colmap(tmp_path / "arc")
    (tmp_path / "arc" / "pairs.txt").write_text("0.png 2.png 0.25\n1.png 2.png 0.5\n", encoding="utf-8")
    pairs = read_posed_pairs(tmp_path)
    assert [(pair.name, pair.overlap) for pair in pairs] == [("0-2", 0.25), ("1-2", 0.5)]
    assert_true(pairs, scene)


@pytest.mark.parametrize("line", ["0.png 1.png", "0.png 7.png 0.5", "0.png 1.png much", "1.png 0.png 0.5"])
def test_a_wrong_line_in_a_list_of_pairs_is_refused(tmp_path, scene, line):
    scene.write_colmap(tmp_path / "arc")
    (tmp_path / "arc" / "pairs.txt").write_text(f"0.png 2.png 0.25\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2"):
        read_posed_pairs(tmp_path)


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


def test_strecha_files_of_larger_images_are_scaled(tmp_path):
    corner_scene.write_strecha_scene(tmp_path / "walls", factor=2)
    (scene,) = read_posed_scenes(tmp_path)
    assert (scene.name, scene.shared_camera, len(scene.images)) == ("walls", True, 5)
    for image, angle in zip(scene.images, corner_scene.ANGLES, strict=True):
        assert image.camera.matrix == pytest.approx(corner_scene.INTRINSICS, abs=1e-9)
        matrix = np.column_stack([image.pose.rotation, image.pose.translation])
        assert matrix == pytest.approx(corner_scene.pose(angle), abs=1e-9)


@pytest.mark.parametrize(("line", "text"), [(2, "0 x 3"), (8, "1 2"), (5, "1 nan 0"), (9, "100 900"), (3, None)])
def test_a_damaged_camera_file_is_refused(tmp_path, line, text):
    file = corner_scene.write_strecha_scene(tmp_path / "walls") / "0001.png.camera"
    lines = file.read_text().splitlines()
    lines[line - 1 :] = lines[: line - 1] if text is None else [text, *lines[line:]]
    file.write_text("\n".join(lines))
    with pytest.raises(DataError):
        read_posed_scenes(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["a.jpg b.jpg 1 2 3\n", "\na.jpg b.jpg 1 2 x\n", "a.jpg\n", "a.jpg ../b.jpg 1 2 3\n", "/a.jpg b.jpg 1 2 3\n"],
)
def test_damaged_and_hostile_pair_lists_are_refused(tmp_path, text):
    (tmp_path / "pairs.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError):
        read_posed_pairs(tmp_path)
