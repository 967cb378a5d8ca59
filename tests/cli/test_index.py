"""The commands `doap index` and `doap pairs`."""

import json
from itertools import combinations

import cv2
import pytest

from doap.collection import extract_folder
from oracles.feature_sets import write_views


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """photos/ of 3 scenes × 4 views, and features/ of them."""
    folder = tmp_path_factory.mktemp("index")
    write_views(folder / "photos")
    extract_folder(folder / "photos", folder / "features", "rootsift", max_keypoints=150, workers=1)
    return folder


@pytest.fixture
def index(doap, folder, tmp_path):
    assert doap("index", "build", folder / "features", "--out", tmp_path / "index", "--json").returncode == 0
    return tmp_path / "index"


def test_a_photo_finds_its_scene(doap, folder, index, tmp_path):
    photo = folder / "photos" / "2" / "1.png"
    verified = ("--features", folder / "features")
    picture = ("--out", tmp_path / "s.png", "--images", folder / "photos")
    ran = doap("index", "search", photo, "--index", index, "--top", 5, "--json", *verified, *picture)
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert set(values) == {"query", "keypoints", "itself", "found", "out"}
    assert values["itself"] == "2/1.png"
    assert {one["name"] for one in values["found"][:3]} == {"2/0.png", "2/2.png", "2/3.png"}
    assert [one["verified"] for one in values["found"]] == [True] * 3 + [False] * 2
    assert set(values["found"][0]) == {"name", "votes", "matches", "inliers", "verified"}
    assert cv2.imread(values["out"]).shape == (32 + 296, 12 + 252 * 6, 3)


def test_images_are_removed_and_added(doap, folder, index):
    ran = doap("index", "remove", "2/1.png", "--index", index)
    assert ran.stdout == f"{index}: 1 image removed\n"
    added = json.loads(doap("index", "add", folder / "features", "--index", index, "--json").stdout)
    assert {"added": 0, "replaced": 0, "unchanged": 11, "excluded": 1}.items() <= added.items()
    ran = doap("index", "search", folder / "photos" / "2" / "1.png", "--index", index, "--top", 12, "--json")
    assert "2/1.png" not in [one["name"] for one in json.loads(ran.stdout)["found"]]
    assert json.loads(doap("index", "info", index, "--json").stdout)["removed"] == 1
    ran = doap("index", "verify", index, "--features", folder / "features")
    assert ran.stdout == f"{index}: intact\n"


def test_wrong_usage_exits_with_two(doap, folder, index):
    photo = folder / "photos" / "0" / "0.png"
    assert doap("index", "search", photo).returncode == 2
    assert doap("index", "search", photo, "--index", index, "--out", "strip.png").returncode == 2
    for half in (("--engine", "milvus"), ("--uri", "http://127.0.0.1:1")):
        assert doap("index", "search", photo, "--index", "photos", *half).returncode == 2


def test_pairs_of_scenes_are_written_and_counted(doap, folder, index, tmp_path):
    out = tmp_path / "pairs.txt"
    ran = doap("pairs", folder / "features", "--top", 3, "--out", out, "--index", index, "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"out": str(out), "images": 12, "pairs": 18, "share": 18 / 66}
    names = [[f"{scene}/{view}.png" for view in range(4)] for scene in range(3)]
    expected = [" ".join(pair) for scene in names for pair in combinations(scene, 2)]
    assert out.read_text().splitlines() == expected
