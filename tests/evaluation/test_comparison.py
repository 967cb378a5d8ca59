"""Comparisons on photos of one plane, where the better descriptor is known."""

import json

import cv2
import numpy as np
import pytest
import torch

from doap._support.errors import ArgumentError, DataError
from doap.baselines import rootsift
from doap.describer import from_function
from doap.evaluation import compare
from doap.images import read_grey, shrink
from doap.images.synthetic_views import SyntheticViews, change_appearance, random_homography, warp
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Write seven views of one plane with different lighting."""
    folder = tmp_path_factory.mktemp("photos")
    plane = read_grey(write_photo(folder / "plane" / "plane.png", seed=0))
    random = np.random.default_rng(0)
    for number in range(7):
        limits = SyntheticViews(max_tilt=30.0, max_roll=30.0, max_zoom=0.3)
        view = warp(plane, random_homography(plane.shape, limits, random))
        cv2.imwrite(str(folder / f"{number}.png"), change_appearance(view, random))
    return sorted(folder.glob("*.png"))


def poor():
    """Return a weak descriptor: sixteen mean grey values, which change with the lighting."""
    return from_function(lambda patches: torch.nn.functional.avg_pool2d(patches, 8).flatten(1), name="poor")


def compared(photos, candidate, baseline, out, **options):
    return compare(
        photos,
        out,
        descriptor=candidate,
        baselines=[baseline],
        **{"max_keypoints": 150, "reconstruction": False, **options},
    )


@pytest.fixture(scope="module")
def better(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("better")
    return compared(photos, "rootsift", poor(), out), out


def test_better_candidate_is_recommended(better):
    comparison, _ = better
    assert comparison.pairs.deciding.outcome == "better"
    assert comparison.views.deciding.outcome == "better"
    assert comparison.verdict.answer == "switch"
    assert comparison.verdict.sentence.startswith(
        "Switch to rootsift: on pairs of photos that overlap, rootsift is better than poor"
    )


def test_random_candidate_is_rejected(photos, tmp_path):
    comparison = compared(photos, "random", "rootsift", tmp_path)
    assert comparison.verdict.answer == "stay"
    assert comparison.verdict.sentence.startswith(
        "Stay with rootsift: on pairs of photos that overlap, random is worse"
    )


def test_candidate_equal_to_a_baseline_makes_no_difference(photos, tmp_path):
    comparison = compared(photos, rootsift(), rootsift(), tmp_path)
    for stage in (comparison.pairs, comparison.views):
        difference = stage.deciding.difference
        assert (difference.value, difference.low, difference.high) == (0, 0, 0)
    assert comparison.verdict.answer == "no difference"
    reason = "on pairs of photos that overlap, rootsift is neither better nor worse than rootsift-2"
    assert comparison.verdict.sentence.startswith(f"No significant difference on 7 photos: {reason}")


def test_page_is_self_contained_and_json_is_the_comparison(better):
    comparison, out = better
    assert sorted(path.name for path in out.iterdir()) == ["comparison.json", "index.html"]
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<h1>Switch to rootsift</h1>" in page
    assert page.count("data:image/jpeg") == 6
    assert "http" not in page
    stored = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(comparison.to_json()))
    assert stored["verdict"]["sentence"] == comparison.verdict.sentence
    assert stored["photos"] == [f"{number}.png" for number in range(7)]
    assert {"opencv-contrib-python-headless", "torch"} <= stored["versions"].keys()


def test_same_seed_gives_the_same_figures(tmp_path):
    small = [write_photo(tmp_path / f"{seed}.png", seed, height=96, width=128) for seed in range(6)]
    first, second = (compared(small, "rootsift", "sift", tmp_path / name) for name in ("first", "second"))
    assert (first.views, first.pairs) == (second.views, second.pairs)


def test_too_few_photos_are_refused_before_any_work(photos, tmp_path):
    with pytest.raises(ArgumentError, match=r"photos: expected at least 6, .* got 5\."):
        compared(photos[:5], "no-such-descriptor", "sift", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_photo_is_refused_before_any_work(photos, tmp_path):
    with pytest.raises(DataError, match=r"none\.jpg: no such photo or folder"):
        compared([*photos, tmp_path / "none.jpg"], "no-such-descriptor", "sift", tmp_path / "out")


def test_photos_of_different_scenes_do_not_overlap(tmp_path):
    different = [write_photo(tmp_path / f"{seed}.png", seed) for seed in range(6)]
    comparison = compared(different, "rootsift", "random", tmp_path / "out", reconstruction=True)
    assert comparison.pairs.deciding is None
    assert "none of 15 pairs of photos overlaps" in comparison.verdict.sentence
    assert (comparison.reconstructions, "0 overlap" in comparison.reconstruction_note) == ({}, True)


def test_unusable_photos_are_skipped_with_the_reason(photos, tmp_path):
    broken, flat = tmp_path / "broken.jpg", tmp_path / "flat.png"
    broken.write_bytes(b"no photo")
    cv2.imwrite(str(flat), np.full((100, 100), 90, np.uint8))
    given = [broken, *photos[:6], flat]
    comparison = compared(given, "rootsift", "sift", tmp_path / "out", max_keypoints=50)
    assert comparison.photos == [f"{number}.png" for number in range(6)]
    assert comparison.photos_given == 8
    assert list(comparison.skipped) == ["broken.jpg", "flat.png"]
    assert "damaged or not an image" in comparison.skipped["broken.jpg"]
    assert "sift detects no keypoints" in comparison.skipped["flat.png"]


def test_too_few_usable_photos_are_refused_with_a_reason(photos, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no photo")
    with pytest.raises(DataError, match=r"photos: expected at least 6, .* got 5\. .*broken\.jpg: OpenCV cannot decode"):
        compared([*photos[:5], broken], "rootsift", "sift", tmp_path / "out")


def test_photos_of_one_name_are_listed_by_their_paths(photos, tmp_path):
    twin = tmp_path / "0.png"
    twin.write_bytes(photos[1].read_bytes())
    comparison = compared([*photos[:5], twin], "rootsift", "sift", tmp_path / "out", max_keypoints=50)
    assert comparison.photos == [photos[0].as_posix(), "1.png", "2.png", "3.png", "4.png", twin.as_posix()]


@pytest.mark.parametrize(("option", "least"), [("max_keypoints", 1), ("max_photos", 6), ("max_pairs", 1)])
def test_numbers_that_are_too_small_are_refused(photos, tmp_path, option, least):
    with pytest.raises(ArgumentError, match=f"{option}: expected {least} or more, got {least - 1}"):
        compared(photos, "rootsift", "sift", tmp_path, **{option: least - 1})


def test_a_baseline_is_required(photos, tmp_path):
    with pytest.raises(
        ArgumentError, match="baselines: expected at least one besides the candidate, got only rootsift"
    ):
        compared(photos, "rootsift", "rootsift", tmp_path)


def test_out_must_not_be_a_file(photos, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="expected a folder to write to"):
        compared(photos, "rootsift", "sift", tmp_path / "file")


@pytest.mark.data("strecha")
def test_photos_of_one_scene_are_reconstructed(data_folder, tmp_path):
    photos = [tmp_path / f"fountain-{number}.jpg" for number in range(3)]
    for number, path in enumerate(photos):
        pixels = read_grey(data_folder / "strecha" / "fountain-P11" / f"{number:04}.jpg")
        cv2.imwrite(str(path), shrink(pixels, 768)[0])
    photos += [write_photo(tmp_path / f"{seed}.png", seed, height=96, width=128) for seed in range(3)]
    comparison = compared(photos, "rootsift", "random", tmp_path, max_keypoints=500, reconstruction=True)
    assert set(comparison.reconstructions) == {"rootsift", "random"}
    assert comparison.reconstructions["rootsift"].registered == 3
    assert comparison.reconstructions["random"].registered == 0
    assert comparison.reconstructions["rootsift"].track_length > 2
    assert comparison.reconstruction_note == f"3 photos connected by {len(comparison.pairs.items)} overlapping pairs"
    assert "<h2>Reconstruction" in (tmp_path / "index.html").read_text(encoding="utf-8")
