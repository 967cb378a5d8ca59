"""An index in a real Milvus server finds what FAISS finds, and shows changes at once.

`benchmarks/milvus.py` has two writers at once, and kills the server.
"""

import json

import numpy as np
import pytest

pytest.importorskip("faiss")
pytest.importorskip("pymilvus")
pytest.importorskip("milvus", reason="milvus, the server, is not installed")

from doap._support.errors import ArgumentError, DataError
from doap.baselines import teblid
from doap.collection import Index, IndexChange, MilvusIndex, build_index, search_images, select_pairs
from doap.collection.index import milvus
from oracles.feature_sets import random_features, write_features, write_photo_features, write_views
from oracles.milvus_server import MilvusServer

# The tests share one server, in one worker of xdist.
pytestmark = [pytest.mark.xdist_group("milvus"), pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = MilvusServer(tmp_path_factory.mktemp("milvus"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Binary features of 2 scenes × 3 views, next to the photos."""
    folder = tmp_path_factory.mktemp("photos")
    names = write_views(folder / "photos", scenes=2, views=3)
    return write_photo_features(folder / "features", folder / "photos", names, "teblid", teblid())


@pytest.fixture(scope="module")
def binary(photos, server, tmp_path_factory):
    """The same index of binary features in FAISS and in Milvus."""
    index = Index(build_index(photos, tmp_path_factory.mktemp("binary") / "index", kind="ivf"))
    return index, MilvusIndex.build(server.uri, "binary", photos, kind="ivf")


def some_images(*numbers):
    return {f"{number}.jpg": random_features(number, 50) for number in numbers}


@pytest.fixture(scope="module")
def changing(server, tmp_path_factory):
    """An index of real descriptors of the images 0 to 3, which the tests below change."""
    features = write_features(tmp_path_factory.mktemp("real"), some_images(0, 1, 2, 3))
    return MilvusIndex.build(server.uri, "changing", features)


def test_neighbours_are_those_of_faiss_if_all_lists_are_searched(binary, photos):
    index, stored = binary
    assert (len(stored), stored.lists) == (len(index), index.lists)
    queries = photos.read("1/2.png").features.descriptors
    expected, ids = index.search(queries, 9, probes=index.lists)
    distances, found = stored.search(queries, 9, probes=index.lists)
    assert distances.dtype == expected.dtype
    np.testing.assert_array_equal(distances, expected)
    # Some descriptors of photos are equal.
    alone = expected[:, 1] > 0
    names = [
        [image.name for image in engine.images_at(engine.image_of(some[alone, 0]).tolist())]
        for engine, some in ((index, ids), (stored, found))
    ]
    assert names[0] == names[1] == ["1/2.png"] * int(alone.sum())


def test_pairs_are_those_of_faiss(binary, photos):
    index, stored = binary
    settings = {"top": 2, "max_keypoints": 50, "probes": index.lists}
    assert select_pairs(photos, index=stored, **settings) == select_pairs(photos, index=index, **settings)


def test_the_commands_change_and_search(doap, binary, photos, server, tmp_path):
    where = ("--index", "binary", "--engine", "milvus", "--uri", server.uri, "--json")
    search = doap("index", "search", photos.folder.parent / "photos/0/0.png", "--top", 2, *where)
    assert {one["name"][0] for one in json.loads(search.stdout)["found"]} == {"0"}
    assert json.loads(doap("index", "add", photos.folder, *where).stdout)["unchanged"] == 6


def test_neighbours_of_real_descriptors_are_those_of_brute_force(changing):
    rows, queries = (
        np.concatenate([one.descriptors for one in some_images(*n).values()]) for n in ((0, 1, 2, 3), (9,))
    )
    expected = np.sort(np.linalg.norm(queries[:, None] - rows[None], axis=2), axis=1)
    np.testing.assert_allclose(changing.search(queries, 5)[0], expected[:, :5], atol=1e-3)


def test_a_removed_image_is_gone_at_once_and_stays_out(changing, tmp_path):
    image, before = some_images(3), len(changing)
    assert search_images(changing, image["3.jpg"])[0].name == "3.jpg"
    assert changing.remove(["3.jpg"]) == IndexChange(removed=1)
    assert "3.jpg" not in [one.name for one in search_images(changing, image["3.jpg"])]
    assert (len(changing), changing.find("3.jpg")) == (before - 50, None)
    assert changing.add(write_features(tmp_path, image)) == IndexChange(excluded=1)
    for name in ("3.jpg", "99.jpg"):
        with pytest.raises(ArgumentError):
            changing.remove([name])


def test_new_and_changed_images_are_found_at_once_by_other_clients(changing, server, tmp_path):
    other, before = MilvusIndex(server.uri, "changing"), len(changing)
    image = {"0.jpg": random_features(50, 40)}
    changed = write_features(tmp_path / "changed", image | some_images(1, 5), changed=" again")
    assert changing.add(changed) == IndexChange(added=1, replaced=2)
    assert changing.add(changed) == IndexChange(unchanged=3)
    assert len(other) == before - 50 + 40 + 50
    for name, one in (image | some_images(5)).items():
        assert search_images(other, one)[0].name == name


def test_an_interrupted_addition_is_continued(changing, tmp_path, monkeypatch):
    more, before, write = (
        write_features(tmp_path / "more", some_images(30, 31)),
        len(changing),
        MilvusIndex._write_image,
    )

    def interrupt(self, number, image):
        if image.checksum != milvus.PENDING:
            raise KeyboardInterrupt
        write(self, number, image)

    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "_write_image", interrupt)
        with pytest.raises(KeyboardInterrupt):
            changing.add(more)
    assert changing.add(more) == IndexChange(added=1, replaced=1)
    assert len(changing) == before + 100


def test_images_whose_hashes_are_equal_stay_apart(changing, tmp_path, monkeypatch):
    monkeypatch.setattr(milvus, "_hash", lambda name, attempt: attempt + 1)
    for numbers in ((60, 61), (62,)):
        changing.add(write_features(tmp_path / str(numbers), some_images(*numbers)))
    for name, image in some_images(60, 61, 62).items():
        assert search_images(changing, image)[0].name == name


def test_servers_names_and_kinds_that_do_not_fit_are_refused(changing, server, tmp_path):
    features = write_features(tmp_path / "features", some_images(0))
    for error, refused in (
        (DataError, lambda: MilvusIndex("http://127.0.0.1:1", "photos")),
        (DataError, lambda: MilvusIndex(server.uri, "nothing")),
        (ArgumentError, lambda: MilvusIndex(server.uri, "my photos")),
        (ArgumentError, lambda: MilvusIndex.build(server.uri, "codes", features, kind="ivf-pq")),
        (DataError, lambda: MilvusIndex.build(server.uri, "changing", features)),
    ):
        with pytest.raises(error):
            refused()
