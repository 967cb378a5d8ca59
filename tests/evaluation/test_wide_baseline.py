"""The benchmarks `wxbs` and `evd`: oracles score 1, controls score chance, and damaged files are named."""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np
import pytest

from doap._support.errors import DataError
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.controls import CONTROLS
from doap.evaluation.descriptors import open_candidate
from doap.evaluation.evd import EvdBenchmark, grid_error, read_evd
from doap.evaluation.homography import project
from doap.evaluation.wxbs import WxbsBenchmark, epipolar_distances, read_wxbs
from doap.images import read_grey
from oracles import corner_scene
from oracles.corner_scene import HEIGHT, INTRINSICS, WIDTH, Oracle
from oracles.photos import write_photo

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
def wxbs_oracle(wxbs_root):
    positions = {}
    for name, angles in VIEWS.items():
        for stem, angle in zip(("01", "02"), angles, strict=True):
            positions[wxbs_root / name / f"{stem}.png"] = partial(corner_scene.surface, corner_scene.pose(angle))
    return Oracle(positions)


HOMOGRAPHIES = {
    "tilt": np.array([[0.8, 0.1, 20], [0.05, 0.9, 5], [4e-4, 0, 1]]),
    "turn": np.array([[0.7, -0.5, 90], [0.5, 0.7, -30], [0, 2e-4, 1]]),
    # As in the published files, the scale and its sign are arbitrary.
    "zoom": np.array([[-1.3, 0, 30], [0, -1.3, 20], [0, 0, -1]]),
}


@pytest.fixture(scope="module")
def evd_root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evd")
    for part in ("1", "2", "h"):
        (folder / part).mkdir()
    for seed, (name, homography) in enumerate(HOMOGRAPHIES.items()):
        photo = read_grey(write_photo(folder / "1" / f"{name}.png", seed, HEIGHT, WIDTH))
        view = cv2.warpPerspective(photo, homography, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REFLECT)
        cv2.imwrite(str(folder / "2" / f"{name}.png"), view)
        np.savetxt(folder / "h" / f"{name}.txt", homography)
    return folder


@pytest.fixture(scope="module")
def evd(evd_root):
    return EvdBenchmark(evd_root, **SETTINGS)


@pytest.fixture(scope="module")
def evd_oracle(evd_root):
    positions = {}
    for name, homography in HOMOGRAPHIES.items():
        positions[evd_root / "1" / f"{name}.png"] = lambda pixels: pixels
        positions[evd_root / "2" / f"{name}.png"] = partial(project, homography=np.linalg.inv(homography))
    return Oracle(positions, dim=2)


def evaluated(benchmark, describer):
    scores = benchmark.evaluate(CachedDescriber(open_candidate(describer)), seed=0)
    return {figure.name: figure for figure in scores.figures}


def true_fundamental(angles):
    """Return the fundamental matrix of two views from their poses."""
    first, second = (corner_scene.pose(angle) for angle in angles)
    rotation = second[:, :3] @ first[:, :3].T
    x, y, z = second[:, 3] - rotation @ first[:, 3]
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    inverse = np.linalg.inv(INTRINSICS)
    return inverse.T @ cross @ rotation @ inverse


def test_an_oracle_scores_nearly_one_on_wxbs(wxbs, wxbs_oracle):
    found = evaluated(wxbs, wxbs_oracle)
    assert found["mAA"].total.value > 0.9
    assert set(found["mAA"].parts) == {"WGBS", "WLABS"}


def test_an_oracle_scores_one_on_evd(evd, evd_oracle):
    found = evaluated(evd, evd_oracle)
    assert found["mAA"].total.value > 0.95
    assert set(found["mAA"].parts) == set(HOMOGRAPHIES)


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_score_chance(wxbs, evd, control):
    """Any epipolar line passes within 10 pixels of some points of a small image, so chance is not 0 there."""
    describer = CONTROLS[control]()
    assert evaluated(wxbs, describer)["mAA"].total.value < 0.25
    assert evaluated(evd, describer)["mAA"].total.value == 0


def test_the_training_scene_is_left_out_of_the_second_figure(wxbs, wxbs_oracle):
    found = evaluated(wxbs, wxbs_oracle)
    assert [pair.name for pair in wxbs.pairs] == sorted(VIEWS)
    assert found["mAA"].total.units == 4
    assert found["mAA without kyiv_dolltheater"].total.units == 3


def test_evaluation_is_deterministic(wxbs, wxbs_oracle):
    assert evaluated(wxbs, wxbs_oracle) == evaluated(wxbs, wxbs_oracle)


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


def test_grid_error_equals_a_loop_over_visible_pixels(evd_root):
    pair = next(pair for pair in read_evd(evd_root) if pair.name == "turn")
    estimated = pair.homography + np.array([[0.01, 0, 1], [0, 0.02, -2], [0, 0, 0]])
    distances = []
    for x in range(0, WIDTH, 4):
        for y in range(0, HEIGHT, 4):
            u, v, w = pair.homography @ [x, y, 1]
            if 0 <= u / w <= WIDTH - 1 and 0 <= v / w <= HEIGHT - 1:
                a, b, c = estimated @ [x, y, 1]
                distances.append(np.hypot(u / w - a / c, v / w - b / c))
    assert grid_error(pair, estimated) == pytest.approx(np.mean(distances))
    assert grid_error(pair, pair.homography) == 0


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
    ("file", "text", "message"),
    [
        ("corrs.txt", "1 2 3 4\n1 x 3 4\n", r"corrs\.txt: expected rows of numbers \(.*row 1"),
        ("corrs.txt", "1 2 3\n", r"corrs\.txt, line 1: expected 4 numbers x1 y1 x2 y2, got 3"),
        ("corrs.txt", "", r"corrs\.txt: expected rows of numbers, got an empty file"),
        ("crossval_errors.txt", "1\n2\n", r"crossval_errors\.txt: expected 40 numbers, .* got 2"),
        ("crossval_errors.txt", "99\n" * 40, r"walls: no correspondence has a cross-validation error up to 10 px"),
    ],
)
def test_a_damaged_file_of_wxbs_is_named(wxbs_root, tmp_path, file, text, message):
    (copied_pair(wxbs_root, tmp_path) / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_wxbs(tmp_path)


def test_a_missing_file_of_wxbs_is_named(wxbs_root, tmp_path):
    folder = copied_pair(wxbs_root, tmp_path)
    (folder / "02.png").unlink()
    with pytest.raises(DataError, match=r"walls: expected an image 02\.png or 02\.jpg"):
        read_wxbs(tmp_path)
    with pytest.raises(DataError, match="expected pairs of WxBS"):
        read_wxbs(tmp_path / "WGBS")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0\n0 1\n", r"tilt\.txt: expected an invertible 3×3 matrix"),
        ("0 0 0\n0 0 0\n0 0 0\n", r"tilt\.txt: expected an invertible 3×3 matrix"),
        ("1 0 9999\n0 1 0\n0 0 1\n", r"tilt\.txt: expected a homography that maps a part of"),
        ("1 0 x\n0 1 0\n0 0 1\n", r"tilt\.txt: expected rows of numbers"),
    ],
)
def test_a_damaged_homography_of_evd_is_named(tmp_path, text, message):
    for part in ("1", "2"):
        write_photo(tmp_path / part / "tilt.png", 0, 40, 60)
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "tilt.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_evd(tmp_path)


def test_missing_files_of_evd_are_named(tmp_path):
    with pytest.raises(DataError, match=r"expected homographies of EVD as h/NAME\.txt"):
        read_evd(tmp_path)
    (tmp_path / "h").mkdir()
    np.savetxt(tmp_path / "h" / "tilt.txt", np.eye(3))
    with pytest.raises(DataError, match=r"1: expected an image tilt\.png or tilt\.jpg"):
        read_evd(tmp_path)


@pytest.mark.data("wide_baseline")
def test_the_published_files_are_read(data_folder):
    pairs = read_wxbs(data_folder / "wide_baseline" / "wxbs")
    assert len(pairs) == 33
    assert len({pair.name for pair in pairs}) == 33
    assert len(read_evd(data_folder / "wide_baseline" / "evd")) == 15
