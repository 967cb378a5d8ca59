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
from oracles.html_pages import assert_well_nested
from oracles.photos import write_photo

PAIRS = "pairs of photos that overlap"


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
    return from_function(lambda patches: torch.nn.functional.avg_pool2d(patches, 8).flatten(1), name="<poor>")


def compared(photos, candidate, baseline, out, **options):
    return compare(
        photos,
        out,
        descriptor=candidate,
        baselines=[baseline],
        **{"max_keypoints": 150, "reconstruction": False, **options},
    )


def test_a_better_candidate_is_recommended_on_a_self_contained_page(photos, tmp_path):
    comparison = compared(photos, "rootsift", poor(), tmp_path)
    assert comparison.verdict.answer == "switch"
    assert comparison.verdict.sentence.startswith("Switch to rootsift: verified inliers in a pair: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.json", "index.html"]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h1>Switch to rootsift</h1>" in page
    assert page.count("data:image/jpeg") == 6
    assert "http" not in page
    assert "<poor>" not in page
    assert_well_nested(page)
    stored = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(comparison.to_json()))
    assert stored["photos"] == [f"{number}.png" for number in range(7)]
    assert [result["descriptor"]["name"] for result in stored["results"][PAIRS]] == ["rootsift", "<poor>"]


@pytest.mark.parametrize(
    ("candidate", "answer", "sentence"),
    [
        ("random", "stay", "Stay with rootsift: "),
        (rootsift(), "no difference", "No significant difference between rootsift and rootsift-2: "),
    ],
)
def test_a_candidate_that_is_not_better_is_not_recommended(photos, tmp_path, candidate, answer, sentence):
    verdict = compared(photos, candidate, rootsift(), tmp_path).verdict
    assert verdict.answer == answer
    assert verdict.sentence.startswith(sentence)


def test_each_descriptor_is_compared_at_its_own_ratio(photos, tmp_path):
    strict = rootsift()
    strict.ratio = 0.01
    comparison = compared(photos, "rootsift", strict, tmp_path)
    assert [result.headline.total.value > 0 for result in comparison.results[PAIRS]] == [True, False]
    assert [result.selected["ratio"] for result in comparison.results[PAIRS]] == [rootsift().ratio, 0.01]


def test_photos_of_different_scenes_do_not_overlap_and_the_same_seed_gives_the_same_figures(tmp_path):
    different = [write_photo(tmp_path / f"{seed}.png", seed, height=96, width=128) for seed in range(6)]
    first, second = (
        compared(different, "rootsift", "random", tmp_path / name, reconstruction=True) for name in ("first", "second")
    )
    assert (first.verdict.answer, first.verdict.reasons) == ("undecided", ["none of 15 pairs of photos overlaps"])
    assert first.results == {PAIRS: [], "reconstructions": []}
    assert first.notes["reconstructions"].endswith("0 overlap")
    assert first == second


def test_unusable_photos_are_skipped_and_photos_of_one_name_are_listed_by_their_paths(photos, tmp_path):
    broken, flat, twin = tmp_path / "broken.jpg", tmp_path / "flat.png", tmp_path / "0.png"
    broken.write_bytes(b"no photo")
    cv2.imwrite(str(flat), np.full((100, 100), 90, np.uint8))
    twin.write_bytes(photos[1].read_bytes())
    given = [broken, *photos[:5], twin, flat]
    comparison = compared(given, "rootsift", "sift", tmp_path / "out", max_keypoints=50)
    assert comparison.photos == [photos[0].as_posix(), "1.png", "2.png", "3.png", "4.png", twin.as_posix()]
    assert list(comparison.skipped) == ["broken.jpg", "flat.png"]
    with pytest.raises(DataError):
        compared([*photos[:5], broken], "rootsift", "sift", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"photos": 5, "candidate": "no-such-descriptor"}, ArgumentError),
        ({"more": "none.jpg", "candidate": "no-such-descriptor"}, DataError),
        ({"max_keypoints": 0}, ArgumentError),
        ({"max_photos": 5}, ArgumentError),
        ({"candidate": "sift"}, ArgumentError),
        ({"out": "file"}, DataError),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(photos, tmp_path, change, error):
    (tmp_path / "file").write_text("mine")
    given = photos[: change.pop("photos", 7)] + [tmp_path / name for name in [change.pop("more", "")] if name]
    out = tmp_path / change.pop("out", "out")
    with pytest.raises(error):
        compared(given, change.pop("candidate", "rootsift"), "sift", out, **change)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.data("strecha")
def test_photos_of_one_scene_are_reconstructed(data_folder, tmp_path):
    """The first photo is larger than the largest side at which photos are described."""
    photos = [tmp_path / f"fountain-{number}.jpg" for number in range(3)]
    for number, path in enumerate(photos):
        pixels = read_grey(data_folder / "strecha" / "fountain-P11" / f"{number:04}.jpg")
        cv2.imwrite(str(path), pixels if number == 0 else shrink(pixels, 1200)[0])
    photos += [write_photo(tmp_path / f"{seed}.png", seed, height=96, width=128) for seed in range(3)]
    comparison = compared(photos, "rootsift", "random", tmp_path, max_keypoints=500, reconstruction=True)
    good, bad = comparison.results["reconstructions"]
    assert good.figure("photos registered").total.value == 3
    assert good.figure("reprojection error").total.value < 1
    assert bad.figure("photos registered").total.value == 0
    assert bad.figure("reprojection error") is None
    overlapping = comparison.notes[PAIRS].split()[0]
    assert comparison.notes["reconstructions"] == f"3 photos connected by {overlapping} overlapping pairs"
