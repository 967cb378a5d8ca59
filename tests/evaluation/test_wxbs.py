"""The benchmark `wxbs`: an oracle scores 1, controls score chance, and damaged files are refused."""

from functools import partial

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError
from doap.evaluation.candidates import CONTROLS, open_candidate
from doap.evaluation.wxbs import WxbsBenchmark, epipolar_distances, read_wxbs
from oracles import corner_scene
from oracles.corner_scene import HEIGHT, INTRINSICS, WIDTH, Oracle

SETTINGS = {"max_keypoints": 400}
VIEWS = {"WGBS/walls": (-12, 12), "WGBS/near": (0, 12), "WLABS/walls": (12, -12), "WLABS/kyiv_dolltheater2": (0, 24)}


def correspondences(views, count=40):
    """Return (count, 4) pixels of the same random points of the walls, inside both images."""
    pixels = np.random.default_rng(0).uniform(0, (WIDTH, HEIGHT), (400, 2))
    there = corner_scene.project(views[1], corner_scene.surface(views[0], pixels))
    inside = ((there >= 0) & (there < (WIDTH, HEIGHT))).all(axis=1)
    return np.hstack([pixels, there])[inside][:count]


@pytest.fixture(scope="module")
def wxbs_root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wxbs")
    for name, angles in VIEWS.items():
        (folder / name).mkdir(parents=True)
        views = [corner_scene.pose(angle) for angle in angles]
        for stem, view in zip(("01", "02"), views, strict=True):
            cv2.imwrite(str(folder / name / f"{stem}.png"), corner_scene.render(view))
        points = correspondences(views)
        np.savetxt(folder / name / "corrs.txt", points)
        np.savetxt(folder / name / "crossval_errors.txt", np.full(len(points), 0.5))
    return folder


@pytest.fixture(scope="module")
def wxbs(wxbs_root):
    return WxbsBenchmark(wxbs_root, **SETTINGS)


@pytest.fixture(scope="module")
def oracle(wxbs_root):
    positions = {}
    for name, angles in VIEWS.items():
        for stem, angle in zip(("01", "02"), angles, strict=True):
            positions[wxbs_root / name / f"{stem}.png"] = partial(corner_scene.surface, corner_scene.pose(angle))
    return Oracle(positions)


def evaluated(benchmark, describer):
    scores = benchmark.evaluate(open_candidate(describer), seed=0)
    return {figure.name: figure for figure in scores.figures}


def true_fundamental(angles):
    """Return the fundamental matrix of two views from their poses."""
    first, second = (corner_scene.pose(angle) for angle in angles)
    rotation = second[:, :3] @ first[:, :3].T
    x, y, z = second[:, 3] - rotation @ first[:, 3]
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    inverse = np.linalg.inv(INTRINSICS)
    return inverse.T @ cross @ rotation @ inverse


def test_an_oracle_scores_nearly_one(wxbs, oracle):
    found = evaluated(wxbs, oracle)
    assert found["mAA"].total.value > 0.9
    assert set(found["mAA"].parts) == {"WGBS", "WLABS"}
    assert found["mAA"].total.units == 4
    assert found["mAA without kyiv_dolltheater"].total.units == 3


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_score_chance(wxbs, control):
    """Any epipolar line passes within 10 pixels of some points of a small image, so chance is not 0."""
    assert evaluated(wxbs, CONTROLS[control]())["mAA"].total.value < 0.25


def test_epipolar_distance_equals_the_distances_to_both_lines():
    """Compare with a loop over points, and with the truth of noise-free correspondences."""
    angles = VIEWS["WGBS/walls"]
    fundamental = true_fundamental(angles)
    exact = correspondences([corner_scene.pose(angle) for angle in angles])
    assert epipolar_distances(exact, fundamental).max() < 1e-6
    points = exact + np.random.default_rng(1).normal(0, 5, exact.shape)
    for x0, y0, x1, y1 in points:
        a, b, c = fundamental @ [x0, y0, 1]
        d, e, f = fundamental.T @ [x1, y1, 1]
        in_image1 = abs(a * x1 + b * y1 + c) / np.hypot(a, b)
        in_image0 = abs(d * x0 + e * y0 + f) / np.hypot(d, e)
        expected = np.hypot(in_image0, in_image1)
        assert epipolar_distances([[x0, y0, x1, y1]], fundamental)[0] == pytest.approx(expected)


def test_a_point_on_the_epipole_is_an_error():
    assert np.isinf(epipolar_distances([[0, 0, 5, 5]], [[0, 0, 0], [0, 0, 0], [0, 0, 1]])).all()


def copied_pair(wxbs_root, tmp_path):
    folder = tmp_path / "WGBS" / "walls"
    folder.mkdir(parents=True)
    for file in (wxbs_root / "WGBS" / "walls").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_correspondences_with_a_large_cross_validation_error_are_dropped(wxbs_root, tmp_path):
    folder = copied_pair(wxbs_root, tmp_path)
    errors = np.full(40, 0.5)
    errors[[3, 5]] = 11
    np.savetxt(folder / "crossval_errors.txt", errors)
    (pair,) = read_wxbs(tmp_path)
    assert pair.points == pytest.approx(np.delete(np.loadtxt(folder / "corrs.txt"), [3, 5], axis=0))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("corrs.txt", "1 2 3 4\n1 x 3 4\n"),
        ("corrs.txt", "1 2 3\n"),
        ("corrs.txt", ""),
        ("crossval_errors.txt", "1\n2\n"),
        ("crossval_errors.txt", "99\n" * 40),
        ("02.png", None),
    ],
)
def test_a_damaged_or_missing_file_is_refused(wxbs_root, tmp_path, file, text):
    damaged = copied_pair(wxbs_root, tmp_path) / file
    damaged.unlink() if text is None else damaged.write_text(text)
    with pytest.raises(DataError):
        read_wxbs(tmp_path)
