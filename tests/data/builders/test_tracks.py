"""Tracks of a scene with known geometry."""

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError
from doap.data.builders import build_from_colmap
from doap.data.builders.from_colmap import cut_tracks
from doap.data.builders.tracks import near_pairs, read_tracks
from doap.data.store import check_set, open_set
from doap.images import angles, centres, scales
from oracles.plane_scene import VIEWS, pose, project, true_keypoints, write_scene


@pytest.fixture
def points():
    """Points of a plane, of which 7 and 8 are close to each other."""
    points = np.column_stack([np.random.default_rng(0).uniform(-1.2, 1.2, (40, 2)), np.zeros(40)])
    points[7] = points[8] + [0.02, 0, 0]
    return points


@pytest.fixture
def scene(tmp_path, points):
    write_scene(tmp_path, points)
    return tmp_path


@pytest.fixture
def tracks(scene):
    return read_tracks(scene / "sparse", scene / "database.db")


def lowest_correlation(patches, count):
    """Return the lowest correlation of the patches of each group with its first patch."""
    flat = patches.reshape(len(patches), -1).astype(float)
    flat -= flat.mean(axis=1, keepdims=True)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    starts = np.cumsum(count) - count
    return np.array([(flat[s : s + c] @ flat[s]).min() for s, c in zip(starts, count, strict=True)])


@pytest.mark.parametrize("with_database", [True, False])
def test_patches_of_a_point_correlate_in_rolled_near_and_oblique_views(scene, with_database):
    tracks = read_tracks(scene / "sparse", scene / "database.db" if with_database else None)
    assert len(tracks.xyz) == 40
    patches, groups = cut_tracks(tracks, scene / "images", "plane", 32)
    assert np.median(lowest_correlation(patches, groups.count)) > 0.9
    other = lowest_correlation(np.roll(patches, 7, axis=0), groups.count)
    assert np.median(other) < 0.5


def test_frames_are_at_the_projected_points_with_pixel_centres_at_integers(tracks):
    for number, arguments in enumerate(VIEWS):
        own = tracks.image == number
        view = pose(*arguments)
        expected = project(view, tracks.xyz[tracks.point[own]]) - 0.5
        np.testing.assert_allclose(centres(tracks.frames[own]), expected, atol=1e-3)
        rows = true_keypoints(view, tracks.xyz[tracks.point[own]])
        np.testing.assert_allclose(scales(tracks.frames[own]), 6 * rows[:, 2], rtol=1e-4)
        np.testing.assert_allclose(angles(tracks.frames[own]), np.degrees(rows[:, 3]), atol=1e-2)


def test_affine_keypoints_are_read_like_keypoints_with_scale_and_orientation(tmp_path, points):
    keypoints = {number: true_keypoints(pose(*view), points) for number, view in enumerate(VIEWS, start=1)}
    affine = {}
    for number, (x, y, scale, angle) in ((number, rows.T) for number, rows in keypoints.items()):
        cos, sin = scale * np.cos(angle), scale * np.sin(angle)
        affine[number] = np.column_stack([x, y, cos, -sin, sin, cos])
    frames = []
    for name, rows in (("plain", keypoints), ("affine", affine)):
        (tmp_path / name).mkdir()
        write_scene(tmp_path / name, points, rows)
        frames.append(read_tracks(tmp_path / name / "sparse", tmp_path / name / "database.db").frames)
    np.testing.assert_allclose(*frames, atol=1e-3)


def test_observations_of_another_scale_or_orientation_are_dropped(tmp_path, points):
    keypoints = {number: true_keypoints(pose(*view), points) for number, view in enumerate(VIEWS, start=1)}
    keypoints[2][3, 2] *= 2
    keypoints[4][5, 3] += np.radians(60)
    write_scene(tmp_path, points, keypoints)
    tracks = read_tracks(tmp_path / "sparse", tmp_path / "database.db")
    assert tracks.dropped["inconsistent scale"] == 1
    assert tracks.dropped["inconsistent orientation"] == 1
    assert tracks.image[tracks.point == 3].tolist() == [0, 2, 3]
    assert tracks.image[tracks.point == 5].tolist() == [0, 1, 2]


def test_nearby_points_ignore_each_other(tracks):
    assert [7, 8] in tracks.ignore.tolist()
    # Points that are far apart do not.
    far = np.linalg.norm(tracks.xyz[tracks.ignore[:, 0]] - tracks.xyz[tracks.ignore[:, 1]], axis=1)
    assert far.max() < 0.3


def test_long_tracks_are_thinned_evenly(scene):
    tracks = read_tracks(scene / "sparse", None, max_views=2)
    assert np.bincount(tracks.point).tolist() == [2] * len(tracks.xyz)
    assert len(set(tracks.image.tolist())) > 1


def test_points_seen_in_another_model_are_left_out(tracks):
    assert len(tracks.without(set()).xyz) == 40
    left = tracks.without({("2.png", 3), ("4.png", 5), ("9.png", 6)})
    assert np.array_equal(left.xyz, np.delete(tracks.xyz, [3, 5], axis=0))
    assert [5, 6] in left.ignore.tolist()  # points 7 and 8, renumbered
    assert np.array_equal(np.bincount(left.point), np.delete(np.bincount(tracks.point), [3, 5]))
    assert not tracks.without(set(tracks.observations())).xyz.size


def test_near_pairs_equal_an_exhaustive_search(points):
    spread = points[:, :2] * 40
    slow = [[i, j] for i in range(40) for j in range(i + 1, 40) if np.linalg.norm(spread[i] - spread[j]) <= 5]
    assert near_pairs(spread, 5.0).tolist() == slow
    assert near_pairs(spread[:0]).shape == (0, 2)


def test_a_build_in_small_units_gives_the_same_groups(scene, tmp_path, monkeypatch):
    whole = build_from_colmap(scene / "sparse", scene / "images", tmp_path / "whole")
    monkeypatch.setattr("doap.data.builders.from_colmap.OBSERVATIONS_AT_ONCE", 9)
    parts = open_set(build_from_colmap(scene / "sparse", scene / "images", tmp_path / "parts"))
    assert (check_set(whole).groups_per_scene, check_set(whole).from_tracks) == ({"images": 40}, 40)
    assert np.array_equal(open_set(whole).patches, parts.patches)
    assert np.array_equal(open_set(whole).count, parts.count)


def test_other_images_and_missing_files_are_refused(scene):
    sparse, images = scene / "sparse", scene / "images"
    with pytest.raises(DataError):
        read_tracks(sparse, scene / "absent.db")
    cv2.imwrite(str(images / "2.png"), cv2.imread(str(images / "2.png"))[:200])
    with pytest.raises(DataError):
        build_from_colmap(sparse, images, scene / "s")


@pytest.mark.parametrize("content", [b"", b"Four score and seven years ago", b"SQLite format 3\0" + bytes(4096)])
def test_a_file_that_is_not_a_database_is_refused_and_not_changed(scene, content):
    (scene / "database.db").write_bytes(content)
    with pytest.raises(DataError):
        read_tracks(scene / "sparse", scene / "database.db")
    assert (scene / "database.db").read_bytes() == content
