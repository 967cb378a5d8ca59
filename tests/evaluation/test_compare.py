"""Comparisons on photos of one plane, where it is known who must win."""

import json

import cv2
import numpy as np
import pytest
import torch

from doap.baselines import rootsift, sift
from doap.describer import from_function
from doap.errors import ArgumentError, DataError
from doap.evaluation import controls
from doap.evaluation.compare import compare_photos
from doap.images import read_grey
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Seven views of one plane, each in another light."""
    folder = tmp_path_factory.mktemp("photos")
    plane = read_grey(write_photo(folder / "plane" / "plane.png", seed=0))
    random = np.random.default_rng(0)
    for number in range(7):
        view = warp(
            plane, random_homography(plane.shape, SyntheticViews(max_tilt=30.0, max_roll=30.0, max_zoom=0.3), random)
        )
        cv2.imwrite(str(folder / f"{number}.png"), change_appearance(view, random))
    return sorted(folder.glob("*.png"))


def poor():
    """Sixteen mean greys of a patch, which any change of light moves."""
    return from_function(lambda patches: torch.nn.functional.avg_pool2d(patches, 8).flatten(1), name="poor")


def compared(photos, describers, out, **settings):
    return compare_photos(photos, describers, out, max_keypoints=150, **{"reconstruction": False, **settings})


@pytest.fixture(scope="module")
def better(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("better")
    return compared(photos, {"rootsift": rootsift(), "poor": poor()}, out), out


def test_better_candidate_is_to_be_switched_to(better):
    comparison, _ = better
    assert comparison.pairs.deciding.outcome == "ahead"
    assert comparison.views.deciding.outcome == "ahead"
    assert comparison.verdict.answer == "switch"
    assert comparison.verdict.sentence.startswith("Switch to rootsift: rootsift is better in pairs of photos")


def test_random_candidate_says_stay(photos, tmp_path):
    comparison = compared(photos, {"random": controls.random(), "rootsift": rootsift()}, tmp_path)
    assert comparison.verdict.answer == "stay"
    assert comparison.verdict.sentence.startswith("Stay with rootsift: random is worse")


def test_candidate_equal_to_a_peer_makes_no_difference(photos, tmp_path):
    comparison = compared(photos, {"mine": rootsift(), "rootsift": rootsift()}, tmp_path)
    for stage in (comparison.pairs, comparison.views):
        gain = stage.deciding.gain
        assert (gain.value, gain.low, gain.high) == (0, 0, 0)
    assert comparison.verdict.answer == "no difference"
    assert comparison.verdict.sentence.startswith("No difference that 7 photos can show: mine is neither better nor")


def test_page_needs_nothing_else_and_json_is_the_comparison(better):
    comparison, out = better
    assert sorted(path.name for path in out.iterdir()) == ["comparison.json", "index.html"]
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<h1>Switch to rootsift</h1>" in page
    assert page.count("data:image/jpeg") == 6
    assert "http" not in page
    told = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    assert told == json.loads(json.dumps(comparison.told()))
    assert told["verdict"]["sentence"] == comparison.verdict.sentence
    assert told["photos"] == [f"{number}.png" for number in range(7)]
    assert {"opencv-contrib-python-headless", "torch"} <= told["versions"].keys()


def test_same_seed_gives_the_same_figures(photos, tmp_path):
    first, second = (
        compared(photos[:2], {"rootsift": rootsift(), "sift": sift()}, tmp_path / name) for name in ("first", "second")
    )
    assert (first.views, first.pairs) == (second.views, second.pairs)


def test_one_photo_is_judged_by_its_views_and_decides_nothing(photos, tmp_path):
    comparison = compared(photos[:1], {"rootsift": rootsift(), "poor": poor()}, tmp_path, reconstruction=True)
    assert comparison.views.items == [(0,)]
    assert comparison.views.deciding.outcome == "unknown"
    assert comparison.pairs.deciding is None
    assert (comparison.models, "0 do" in comparison.models_note) == ({}, True)
    assert comparison.verdict.answer == "no difference"
    assert comparison.verdict.sentence.startswith("No difference that 1 photo can show: one photo has no pair;")


def test_photos_of_different_things_do_not_overlap(tmp_path):
    different = [write_photo(tmp_path / f"{seed}.png", seed) for seed in range(3)]
    comparison = compared(different, {"rootsift": rootsift(), "random": controls.random()}, tmp_path / "out")
    assert comparison.pairs.deciding is None
    assert "no two photos overlap, of 3 pairs" in comparison.verdict.sentence


def test_photos_that_cannot_be_judged_on_are_left_out_with_their_reason(photos, tmp_path):
    broken, flat = tmp_path / "broken.jpg", tmp_path / "flat.png"
    broken.write_bytes(b"no photo")
    cv2.imwrite(str(flat), np.full((100, 100), 90, np.uint8))
    given = [broken, *photos[:2], flat]
    comparison = compared(given, {"rootsift": rootsift(), "sift": sift()}, tmp_path / "out")
    assert comparison.photos == ["0.png", "1.png"]
    assert comparison.given == 4
    assert list(comparison.left_out) == ["broken.jpg", "flat.png"]
    assert "damaged or foreign" in comparison.left_out["broken.jpg"]
    assert "expected keypoints of sift, got none" in comparison.left_out["flat.png"]


def test_no_photo_to_judge_on_is_an_error(tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no photo")
    with pytest.raises(DataError, match=r"expected one or more to judge on, got none of 1: .*broken\.jpg"):
        compared([broken], {"rootsift": rootsift(), "sift": sift()}, tmp_path / "out")


def test_photos_of_one_name_are_told_by_their_paths(photos, tmp_path):
    twin = tmp_path / "0.png"
    twin.write_bytes(photos[1].read_bytes())
    comparison = compared([photos[0], twin], {"rootsift": rootsift(), "sift": sift()}, tmp_path / "out")
    assert comparison.photos == [photos[0].as_posix(), twin.as_posix()]


@pytest.mark.parametrize("settings", [{"max_keypoints": 0}, {"photos": 0}, {"pairs": 0}])
def test_numbers_below_one_are_refused(photos, tmp_path, settings):
    with pytest.raises(ArgumentError, match="expected 1 or more"):
        compare_photos(photos, {"rootsift": rootsift(), "sift": sift()}, tmp_path, **settings)


def test_candidate_alone_is_refused(photos, tmp_path):
    with pytest.raises(ArgumentError, match="expected a candidate and one other or more"):
        compared(photos, {"rootsift": rootsift()}, tmp_path)


def test_out_that_is_a_file_is_refused_before_the_work(photos, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="expected a folder to write to"):
        compared(photos, {"rootsift": rootsift(), "sift": sift()}, tmp_path / "file")


@pytest.mark.data
def test_photos_of_one_place_are_reconstructed(data_folder, tmp_path):
    photos = [data_folder / "strecha" / "fountain-P11" / f"{number:04}.jpg" for number in range(3)]
    comparison = compare_photos(
        photos, {"rootsift": rootsift(), "random": controls.random()}, tmp_path, max_keypoints=500
    )
    assert set(comparison.models) == {"rootsift", "random"}
    assert comparison.models["rootsift"].registered == 3
    assert comparison.models["random"].registered == 0
    assert comparison.models["rootsift"].track_length > 2
    assert comparison.models_note == f"3 photos that hang together by {len(comparison.pairs.items)} pairs that overlap"
    assert "<h2>Reconstruction" in (tmp_path / "index.html").read_text(encoding="utf-8")
