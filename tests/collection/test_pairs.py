"""Selected pairs show the same scene."""

import dataclasses
from itertools import combinations

import pytest

from doap._support.errors import ArgumentError, DataError
from doap.baselines import rootsift
from doap.collection.index import Index, build_index
from doap.collection.pairs import select_pairs, write_pairs
from oracles.feature_sets import random_features, write_features, write_photo_features, write_views


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    names = write_views(folder / "photos")
    return write_photo_features(folder / "features", folder / "photos", names, "rootsift", rootsift())


def test_pairs_are_within_scenes(features):
    expected = [pair for pair in combinations(features.names, 2) if pair[0][0] == pair[1][0]]
    assert select_pairs(features, top=3, max_keypoints=100) == expected


def test_new_images_are_paired_with_images_of_the_index(tmp_path):
    images = {f"{number}.jpg": random_features(number, 40) for number in range(4)}
    index = Index(build_index(write_features(tmp_path / "all", images), tmp_path / "index"))
    new = write_features(tmp_path / "new", {"new.jpg": images["2.jpg"]})
    assert select_pairs(new, top=1, index=index) == [("2.jpg", "new.jpg")]


def test_images_without_keypoints_have_no_pairs(tmp_path):
    images = {f"{number}.jpg": random_features(number, count) for number, count in enumerate((20, 0, 20))}
    assert select_pairs(write_features(tmp_path / "features", images)) == [("0.jpg", "2.jpg")]


def test_bad_input_is_refused(features, tmp_path):
    with pytest.raises(ArgumentError):
        select_pairs(features, top=0, max_keypoints=5)
    for name in ("a b.jpg", "#1.jpg"):
        with pytest.raises(DataError):
            write_pairs([(name, "c.jpg")], tmp_path / "pairs.txt")
    assert not (tmp_path / "pairs.txt").exists()
    other = dataclasses.replace(features.extractor, fingerprint="other")
    image = features.read("0/0.png").features
    foreign = write_features(tmp_path / "foreign", {"a.jpg": image}, extractor=other)
    index = Index(build_index(foreign, tmp_path / "index"))
    with pytest.raises(DataError):
        select_pairs(features, index=index)
