"""An index in a real Milvus server finds what FAISS finds, and shows changes at once."""

import json

import numpy as np
import pytest

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")
pytest.importorskip("milvus", reason="milvus, the server, is not installed")

from doap._support.errors import ArgumentError, DataError
from doap.baselines import rootsift, teblid
from doap.collection import Index, IndexChange, MilvusIndex, build_index, search_images, select_pairs
from doap.collection.index import milvus
from oracles.feature_sets import random_features, write_features, write_photo_features, write_views
from oracles.milvus_server import MilvusServer

# The tests share one server, in one worker of xdist.
pytestmark = [pytest.mark.xdist_group("milvus"), pytest.mark.slow]
BASELINES = {"rootsift": (rootsift, "flat"), "teblid": (teblid, "ivf")}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = MilvusServer(tmp_path_factory.mktemp("milvus"))
    yield running
    running.close()


@pytest.fixture(scope="module", params=BASELINES)
def both(request, server, tmp_path_factory):
    """Features of 3 scenes × 4 views, the same index in FAISS and in Milvus, and the number of lists."""
    folder, (baseline, kind) = tmp_path_factory.mktemp(request.param), BASELINES[request.param]
    names = write_views(folder / "photos")
    features = write_photo_features(folder / "features", folder / "photos", names, request.param, baseline())
    index = Index(build_index(features, folder / "index", kind=kind))
    return features, index, MilvusIndex.build(server.uri, request.param, features, kind=kind), index.plan.lists or None


def test_neighbours_are_those_of_faiss_if_all_lists_are_searched(both):
    features, index, stored, lists = both
    assert (len(stored), stored.plan) == (len(index), index.plan)
    image = features.read("1/2.png").features
    expected, _ = index.search(image.descriptors, 9, probes=lists)
    distances, found = stored.search(image.descriptors, 9, probes=lists)
    assert distances.dtype == expected.dtype
    # FAISS rounds the distance of a descriptor to itself.
    np.testing.assert_allclose(distances, expected, atol=1e-2)
    # Some binary descriptors are equal.
    alone = expected[:, 1] > 1e-2
    assert {one.name for one in stored.images_at(stored.image_of(found[alone, 0]).tolist())} == {"1/2.png"}
    np.testing.assert_array_equal(stored.frames(found[alone, 0]), image.frames[alone])


def test_verified_images_are_those_of_faiss(both):
    features, index, stored, lists = both
    query = features.read("1/0.png").features
    expected, found = (search_images(one, query, top=4, verify=True, probes=lists) for one in (index, stored))
    # Binary descriptors have ties at the last distance.
    votes = {one.name: pytest.approx(one.votes, rel=0.05) for one in expected}
    assert {one.name: one.votes for one in found} == votes
    assert all(one.verified for one in found)


def test_pairs_are_those_of_faiss(both):
    features, index, stored, lists = both
    settings = {"top": 3, "max_keypoints": 50, "probes": lists}
    assert select_pairs(features, index=stored, **settings) == select_pairs(features, index=index, **settings)


def some_images(numbers):
    return {f"{number}.jpg": random_features(number, 200, dim=256, binary=True) for number in numbers}


@pytest.fixture(scope="module")
def index(server, tmp_path_factory):
    """An index of the images 0 to 3, which the tests below change."""
    features = write_features(tmp_path_factory.mktemp("features"), some_images(range(4)))
    return MilvusIndex.build(server.uri, "changing", features)


def test_a_removed_image_is_gone_at_once_and_stays_out(index, tmp_path):
    image = some_images([3])
    assert search_images(index, image["3.jpg"])[0].name == "3.jpg"
    before = len(index)
    assert index.remove(["3.jpg"]) == IndexChange(removed=1)
    assert "3.jpg" not in [one.name for one in search_images(index, image["3.jpg"])]
    assert (len(index), index.find("3.jpg")) == (before - 200, None)
    assert index.add(write_features(tmp_path, image)) == IndexChange(excluded=1)
    with pytest.raises(ArgumentError, match=r"3.jpg: not in .*: it was removed before"):
        index.remove(["3.jpg"])
    with pytest.raises(ArgumentError, match=r"99.jpg: not in .*: no such image"):
        index.remove(["99.jpg"])


def test_new_and_changed_images_are_found_at_once_by_other_clients(index, server, tmp_path):
    other, before = MilvusIndex(server.uri, "changing"), len(index)
    image = {"0.jpg": random_features(50, 40, dim=256, binary=True)}
    changed = write_features(tmp_path / "changed", image | some_images([1, 5]), changed=" again")
    assert index.add(changed) == IndexChange(added=1, replaced=2)
    assert index.add(changed) == IndexChange(unchanged=3)
    assert len(other) == before - 200 + 40 + 200
    for name, one in (image | some_images([5])).items():
        assert search_images(other, one)[0].name == name


def test_an_interrupted_addition_is_continued(index, tmp_path, monkeypatch):
    more = write_features(tmp_path / "more", some_images(range(30, 33)))
    before, write = len(index), MilvusIndex._write_images

    def interrupt(self, rows):
        if rows[0][1].checksum != milvus.PENDING:
            raise KeyboardInterrupt
        write(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "_write_images", interrupt)
        with pytest.raises(KeyboardInterrupt):
            index.add(more)
    assert index.add(more) == IndexChange(replaced=3)
    assert len(index) == before + 600


def test_images_whose_hashes_are_equal_stay_apart(index, tmp_path, monkeypatch):
    monkeypatch.setattr(milvus, "_hash", lambda name, attempt: attempt + 1)
    for numbers in (range(60, 62), [62]):
        index.add(write_features(tmp_path / str(numbers), some_images(numbers)))
    assert sorted(index.find(f"{number}.jpg") for number in range(60, 63)) == [1, 2, 3]
    for name, image in some_images(range(60, 63)).items():
        assert search_images(index, image)[0].name == name


def test_wrong_servers_names_and_kinds_are_reported_in_one_line(doap, index, server, tmp_path):
    features = write_features(tmp_path / "features", some_images([0]))
    absent = ("--engine", "milvus", "--uri", "http://127.0.0.1:1", "--json")
    ran = doap("index", "build", features.folder, "--out", "photos", *absent)
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("doap: http://127.0.0.1:1: no Milvus server answers. Start it, or check --uri.")
    with pytest.raises(DataError, match=r"nothing at .*: no such index. Build it with doap index build"):
        MilvusIndex(server.uri, "nothing")
    with pytest.raises(ArgumentError, match="my photos: expected a name of letters, digits and underscores"):
        MilvusIndex(server.uri, "my photos")
    with pytest.raises(ArgumentError, match="kind: expected flat or ivf for Milvus, got ivf-pq"):
        MilvusIndex.build(server.uri, "codes", features, kind="ivf-pq")
    with pytest.raises(DataError, match=r"changing at .*: already exists"):
        MilvusIndex.build(server.uri, "changing", features)


def test_the_commands_build_change_and_search(doap, server, tmp_path):
    names = write_views(tmp_path / "photos", scenes=2, views=3)
    features = write_photo_features(tmp_path / "features", tmp_path / "photos", names, "rootsift", rootsift()).folder
    where = ("--engine", "milvus", "--uri", server.uri, "--json")
    built = doap("index", "build", features, "--out", "commands", *where)
    assert json.loads(built.stdout) == {"index": "commands", "uri": server.uri, "descriptors": 900, "kind": "flat"}
    pairs = doap("pairs", features, "--index", "commands", "--out", tmp_path / "pairs.txt", "--top", 2, *where)
    assert json.loads(pairs.stdout)["pairs"] == 6
    removed = doap("index", "remove", "0/1.png", "--index", "commands", *where)
    assert json.loads(removed.stdout)["removed"] == 1
    added = doap("index", "add", features, "--index", "commands", *where)
    assert (json.loads(added.stdout)["unchanged"], json.loads(added.stdout)["excluded"]) == (5, 1)
    search = doap("index", "search", tmp_path / "photos/0/0.png", "--index", "commands", "--top", 2, *where)
    assert [one["name"][0] for one in json.loads(search.stdout)["found"]].count("0") >= 1


def test_requests_wait_for_a_server_that_starts_again(index, server):
    server.kill()
    server.start()
    # The server answers before it has loaded its collections again.
    assert len(index) == len(MilvusIndex(server.uri, "changing"))
    assert search_images(index, some_images([2])["2.jpg"])[0].name == "2.jpg"
