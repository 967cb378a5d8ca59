"""Localisation of photos in a COLMAP model, on a textured plane with known cameras."""

import json
import shutil

import cv2
import numpy as np
import pycolmap
import pytest
from typer.testing import CliRunner

import doap
from doap._support.errors import DataError
from doap._support.files import sha256
from doap.cli import app
from doap.collection.localization import Localization, _estimate_pose
from doap.geometry.pose import rotation_angle
from oracles.photos import write_photo
from oracles.plane_scene import FOCAL, HEIGHT, VIEWS, WIDTH, pose, project, render, write_scene

NEW_VIEW = (15, 8, 20)


def points_of_keypoints(view):
    """Return the points (N, 3) of the plane that SIFT detects in a view and all views of the scene contain."""
    keypoints = doap.extract(render(view), doap.load("rootsift"), max_keypoints=400).keypoints
    u, v = (keypoints[:, 0] + 0.5 - WIDTH / 2) / FOCAL, (keypoints[:, 1] + 0.5 - HEIGHT / 2) / FOCAL
    rays = np.column_stack([u, v, np.ones_like(u)]) @ view[:, :3]
    eye = -view[:, :3].T @ view[:, 3]
    points = eye - eye[2] / rays[:, 2:] * rays
    seen = [project(pose(*one), points) for one in VIEWS]
    return points[np.all([((xy > 0) & (xy < (WIDTH, HEIGHT))).all(axis=1) for xy in seen], axis=0)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    write_scene(folder, points_of_keypoints(pose(*VIEWS[0])))
    cv2.imwrite(str(folder / "new.png"), render(pose(*NEW_VIEW)))
    write_photo(folder / "other.png", 3)
    return folder


@pytest.fixture(scope="module")
def localizer(scene):
    return doap.Localizer(scene / "sparse", scene / "images", scene / "cache", descriptor="rootsift")


def errors(found):
    """Return the rotation error in degrees and the distance between the centres."""
    truth = pose(*NEW_VIEW)
    centre = -truth[:, :3].T @ truth[:, 3]
    return rotation_angle(found.pose.rotation @ truth[:, :3].T), float(np.linalg.norm(found.centre - centre))


def test_a_new_photo_has_the_true_pose(scene, localizer):
    found = localizer.localize(scene / "new.png", camera="1.png")
    rotation, distance = errors(found)
    assert rotation < 1
    assert distance < 0.1
    assert 15 < found.inliers <= found.matches
    assert sum(found.images.values()) == found.inliers
    assert set(found.images) <= {"1.png", "2.png", "3.png", "4.png"}


def test_matches_pass_the_ratio_test_of_the_descriptor(scene, localizer):
    describer = doap.load("rootsift")
    describer.ratio = 0.01
    strict = doap.Localizer(scene / "sparse", scene / "images", scene / "cache", descriptor=describer)
    assert strict.localize(scene / "new.png", camera="1.png") is None


def test_an_unknown_focal_length_is_estimated():
    random = np.random.default_rng(0)
    points, truth = random.normal(0, 2, (100, 3)), pose(*NEW_VIEW)
    pixels = project(truth, points) + random.normal(0, 0.3, (100, 2))
    pixels[:40] = random.uniform(0, 200, (40, 2))
    names = ["a.png"] * 40 + ["b.png"] * 60
    guess = pycolmap.Camera.create_from_model_name(1, "SIMPLE_RADIAL", 900.0, WIDTH, HEIGHT)
    found = _estimate_pose(pixels, points, names, guess, refine=True, threshold=4)
    assert found.camera.focal_length == pytest.approx(FOCAL, rel=0.02)
    assert errors(found)[0] < 0.5
    assert found.images["b.png"] == 60


def test_few_inliers_are_no_pose():
    random = np.random.default_rng(0)
    points = random.normal(0, 2, (11, 3))
    pixels = project(pose(*NEW_VIEW), points)
    camera = pycolmap.Camera.create_from_model_name(1, "SIMPLE_PINHOLE", FOCAL, WIDTH, HEIGHT)
    assert _estimate_pose(pixels, points, ["a.png"] * 11, camera, refine=False, threshold=4) is None


def write_copy(scene, path, width, height):
    """Write a copy of the new photo of this size."""
    photo = cv2.imread(str(scene / "new.png"), cv2.IMREAD_GRAYSCALE)
    cv2.imwrite(str(path), cv2.resize(photo, (width, height), interpolation=cv2.INTER_AREA))
    return path


@pytest.mark.parametrize("size", [(256, 192), (317, 238), (256, 193)])
def test_intrinsics_are_scaled_to_the_size_of_the_photo(scene, localizer, tmp_path, size):
    found = localizer.localize(write_copy(scene, tmp_path / "new.png", *size), camera="1.png")
    assert found.camera.matrix[0, 0] == pytest.approx(FOCAL * size[0] / WIDTH, rel=0.005)
    rotation, distance = errors(found)
    assert rotation < 1
    assert distance < 0.2


def test_a_photo_of_another_aspect_ratio_does_not_have_the_camera_of_the_image(scene, localizer, tmp_path):
    photo = write_copy(scene, tmp_path / "new.png", 240, 320)
    with pytest.raises(DataError):
        localizer.localize(photo, camera="1.png")


def test_images_of_another_size_than_their_camera_are_refused(scene, tmp_path):
    shutil.copytree(scene / "images", tmp_path / "images")
    write_copy(scene, tmp_path / "images" / "3.png", 317, 238)
    with pytest.raises(DataError):
        doap.Localizer(scene / "sparse", tmp_path / "images", tmp_path / "cache", descriptor="rootsift")


def test_images_of_the_model_that_are_missing_or_damaged_are_reported(scene, tmp_path):
    shutil.copytree(scene / "images", tmp_path / "images")
    (tmp_path / "images" / "2.png").unlink()
    (tmp_path / "images" / "1.png").write_bytes(b"damaged")
    options = ["--images", tmp_path / "images", "--cache", tmp_path / "cache", "--descriptor", "rootsift"]
    options += ["--model", scene / "sparse", "--camera", "1.png"]
    ran = CliRunner().invoke(app, ["localize", *map(str, [scene / "new.png", *options])])
    assert f"2 of 4 images of the model used; {tmp_path / 'images' / '2.png'}: no such image." in ran.stderr
    found = doap.Localizer(scene / "sparse", tmp_path / "images", tmp_path / "cache", descriptor="rootsift")
    assert (found.total, list(found.skipped)) == (4, ["2.png", "1.png"])
    assert "1.png: OpenCV cannot decode the file" in found.skipped["1.png"]


@pytest.mark.parametrize(("inliers", "outliers", "reliable"), [(29, 0, False), (30, 90, True), (30, 91, False)])
def test_a_pose_with_few_inliers_is_not_reliable(inliers, outliers, reliable):
    found = Localization(pose(*NEW_VIEW), None, inliers + outliers, inliers, {"a.png": inliers})
    assert found.reliable == reliable


def test_another_descriptor_and_a_smaller_model_use_the_same_cache(scene, localizer, tmp_path):
    localizer.localize(scene / "new.png", camera="1.png", top=2)
    model = pycolmap.Reconstruction(scene / "sparse")
    former = next(image for image in model.images.values() if image.name == "4.png")
    model.deregister_frame(former.frame_id)
    smaller, cache = tmp_path / "sparse", tmp_path / "cache"
    shutil.copytree(scene / "cache", cache)
    smaller.mkdir()
    model.write(smaller)
    for descriptor in ("rootsift", "sift"):
        found = doap.Localizer(smaller, scene / "images", cache, descriptor=descriptor)
        pose_found = found.localize(scene / "new.png", camera="1.png", top=2)
        assert errors(pose_found)[0] < 1
        assert "4.png" not in pose_found.images


def test_a_photo_of_another_scene_has_no_pose(scene, localizer):
    assert localizer.localize(scene / "other.png", camera="1.png") is None


def test_model_images_and_database_are_only_read(scene, localizer):
    files = [scene / "database.db", *(path for name in ("sparse", "images") for path in (scene / name).iterdir())]
    before = [sha256(path) for path in files]
    localizer.localize(scene / "new.png")
    assert [sha256(path) for path in files] == before
    assert {path.name for path in scene.iterdir()} == {
        *("images", "sparse", "database.db", "new.png", "other.png", "cache")
    }


def test_the_command_prints_poses_and_fails_without_one(scene, localizer):
    options = ["--model", scene / "sparse", "--images", scene / "images", "--cache", scene / "cache"]
    options += ["--descriptor", "rootsift", "--camera", "1.png"]
    ran = CliRunner().invoke(app, ["localize", *map(str, [scene / "new.png", *options])])
    assert ran.exit_code == 0, ran.output
    assert "matches agree, from" in ran.output
    photos = [str(scene / name) for name in ("new.png", "other.png")]
    ran = CliRunner().invoke(app, ["localize", *photos, *map(str, options), "--json"])
    assert ran.exit_code == 1
    found = json.loads(ran.stdout)
    assert found[photos[1]] is None
    assert found[photos[0]]["reliable"] == localizer.localize(photos[0], camera="1.png").reliable
    expected = localizer.localize(photos[0], camera="1.png")
    np.testing.assert_allclose(found[photos[0]]["rotation"], expected.pose.rotation)
