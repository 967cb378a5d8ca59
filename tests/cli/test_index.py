"""The `doap index` commands."""

import json

import cv2
import numpy as np
import pytest

from doap.collection import extract_folder
from oracles.feature_sets import random_features, write_features, write_views


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


def assert_one_line(ran, *words):
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("doap: ")
    for word in words:
        assert word in line


def test_build_reports_type_and_cost(doap, folder, tmp_path):
    ran = doap("index", "build", folder / "features", "--out", tmp_path / "index")
    assert ran.returncode == 0, ran.stderr
    first, rule, size, compared = ran.stdout.splitlines()
    assert first.endswith("12 images, 1,800 descriptors")
    assert "1,800 real descriptors: flat, since flat is for up to 100,000" in rule
    assert "520." in size
    assert "1,800 comparisons" in compared


def test_a_photo_finds_its_scene(doap, folder, index, tmp_path):
    photo = folder / "photos" / "2" / "1.png"
    picture = ("--out", tmp_path / "s.png", "--images", folder / "photos")
    ran = doap("index", "search", photo, "--index", index, "--top", 5, "--verify", "--json", *picture)
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert set(values) == {"query", "keypoints", "itself", "found", "out"}
    assert values["itself"] == "2/1.png"
    assert {one["name"] for one in values["found"][:3]} == {"2/0.png", "2/2.png", "2/3.png"}
    assert [one["verified"] for one in values["found"]] == [True] * 3 + [False] * 2
    assert set(values["found"][0]) == {"name", "votes", "matches", "inliers", "verified"}
    assert cv2.imread(values["out"]).shape == (32 + 296, 12 + 252 * 6, 3)


def test_text_output_is_a_table(doap, folder, index):
    photo = folder / "photos" / "2" / "1.png"
    lines = doap("index", "search", photo, "--index", index, "--top", 2).stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:2] == ["1", "votes"]
    assert lines[0].split()[-1] in {"2/0.png", "2/2.png"}
    assert lines[2] == "The query itself, 2/1.png, is not listed."
    black = index.parent / "black.png"
    cv2.imwrite(str(black), np.zeros((60, 80), np.uint8))
    assert doap("index", "search", black, "--index", index).stdout == "No similar image found.\n"


def test_verification_by_stored_features(doap, folder, index):
    photo = folder / "photos" / "0" / "2.png"
    ran = doap("index", "search", photo, "--index", index, "--verify", "--features", folder / "features", "--json")
    found = json.loads(ran.stdout)["found"]
    assert {one["name"][0] for one in found[:3]} == {"0"}
    assert found[0]["inliers"] > 50


def test_images_are_removed_and_added(doap, folder, index):
    ran = doap("index", "remove", "2/1.png", "--index", index)
    assert ran.stdout == f"{index}: 1 image removed\n"
    added = json.loads(doap("index", "add", folder / "features", "--index", index, "--json").stdout)
    assert {"added": 0, "replaced": 0, "unchanged": 11, "excluded": 1}.items() <= added.items()
    ran = doap("index", "search", folder / "photos" / "2" / "1.png", "--index", index, "--top", 12, "--json")
    assert "2/1.png" not in [one["name"] for one in json.loads(ran.stdout)["found"]]
    assert json.loads(doap("index", "info", index, "--json").stdout)["removed_images"] == 1
    assert "removed: 1 image; 150 descriptors of removed" in doap("index", "info", index).stdout
    ran = doap("index", "verify", index, "--features", folder / "features")
    assert ran.stdout == f"{index}: 3 files intact\n"


def test_removed_descriptors_leave_the_files(doap, folder, index):
    doap("index", "remove", "2/1.png", "--index", index)
    done = json.loads(doap("index", "compact", index, "--json").stdout)
    assert done["descriptors"] == 150
    assert done["bytes_after"] < done["bytes_before"]
    assert doap("index", "compact", index).stdout.startswith(f"{index}: 0 descriptors deleted; ")
    assert "0 descriptors of removed" in doap("index", "info", index).stdout
    assert doap("index", "verify", index).returncode == 0


def test_lists_on_disk_find_what_an_index_in_memory_finds(doap, folder, tmp_path):
    photo, index = folder / "photos" / "2" / "1.png", tmp_path / "index"
    doap("index", "build", folder / "features", "--out", index, "--kind", "ivf")
    search = ("index", "search", photo, "--index", index, "--verify", "--json")
    found = [json.loads(doap(*search, *way).stdout)["found"] for way in ((), ("--on-disk",))]
    assert found[0] == found[1]
    assert found[0][0]["verified"]


def test_errors_are_one_line(doap, folder, index, tmp_path):
    photo = folder / "photos" / "0" / "0.png"
    assert_one_line(doap("index", "search", photo, "--index", tmp_path / "no"), "no: not an index")
    assert_one_line(doap("index", "search", photo, "--index", index, "--probes", 3), "a flat index has no lists")
    assert_one_line(
        doap("index", "search", photo, "--index", index, "--descriptor", "sift"), "expected the descriptor", "rootsift"
    )
    assert_one_line(doap("index", "search", tmp_path / "no.png", "--index", index), "no.png")
    assert_one_line(doap("index", "remove", "9.png", "--index", index), "9.png", "no such image")
    assert_one_line(doap("index", "build", tmp_path / "no", "--out", tmp_path / "x", "--json"), "not a feature set")
    assert_one_line(doap("index", "build", folder / "features", "--out", index, "--json"), "exists")
    write_features(tmp_path / "empty", {"a.jpg": random_features(0, 0)})
    assert_one_line(
        doap("index", "build", tmp_path / "empty", "--out", tmp_path / "x", "--json"),
        "none of the images has a keypoint",
    )
    write_features(tmp_path / "other", {"a.jpg": random_features(0, 9)})
    assert_one_line(doap("index", "add", tmp_path / "other", "--index", index, "--json"), "dim is 32 instead of 128")
    descriptors = index / "descriptors-000001.faiss"
    descriptors.write_bytes(descriptors.read_bytes()[:-1] + b"x")
    assert_one_line(doap("index", "verify", index), "descriptors-000001.faiss", "SHA-256")


def test_wrong_usage_exits_with_two(doap, folder, index):
    photo = folder / "photos" / "0" / "0.png"
    assert doap("index", "search", photo).returncode == 2
    assert doap("index", "search", photo, "--index", index, "--out", "strip.png").returncode == 2
    assert doap("index", "build", folder / "features", "--out", index, "--kind", "hnsw").returncode == 2
    for half in (("--engine", "milvus"), ("--uri", "http://127.0.0.1:1")):
        assert doap("index", "search", photo, "--index", "photos", *half).returncode == 2
