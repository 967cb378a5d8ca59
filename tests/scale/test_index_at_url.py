"""An index in an object store: published as a whole, opened through a cache, and equal to a local one."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from doap.errors import ArgumentError, DataError
from doap.scale import (
    Index,
    IndexChange,
    ShardedIndex,
    add_images,
    build_index,
    compact_index,
    extract_folder,
    open_index,
    remove_images,
    search_images,
    train_index,
)
from doap.scale.index import snapshots
from doap.scale.storage import ObjectStore, StoredFile, open_storage
from oracles.feature_sets import random_features, write_features, write_views
from oracles.forked import run_forked
from oracles.object_store import KEY, SECRET, MarkerFilter

# The tests share one server, in one worker of xdist.
pytestmark = pytest.mark.xdist_group("object store")
# Kills itself before the n-th request that writes to or deletes from the store.
KILLED_CHANGE = """
import os, signal, sys
from doap.scale import add_images
from doap.scale.storage import ObjectStore

url, features, left = *sys.argv[1:3], int(sys.argv[3])

def counted(method):
    def call(*arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*arguments)
    return call

ObjectStore.write, ObjectStore.delete = counted(ObjectStore.write), counted(ObjectStore.delete)
add_images(url, features)
"""


@pytest.fixture(scope="module")
def marker_filter(server):
    running = MarkerFilter(server.port)
    yield running
    running.close()


@pytest.fixture(autouse=True)
def cache(bucket, marker_filter, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{marker_filter.port}")
    monkeypatch.setenv("DOAP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def features_of(folder, numbers):
    return write_features(folder, {f"{number}.jpg": random_features(number, 60, dim=16) for number in numbers})


@pytest.fixture
def features(tmp_path):
    """Two sets of features."""
    return features_of(tmp_path / "features", range(5)), features_of(tmp_path / "more", (5, 6))


def answers(index):
    """Neighbours, results and frames of an index."""
    query = random_features(2, 60, dim=16)
    distances, ids = index.search(query.descriptors, 7)
    frames = [index.frames(index.images.numbers[name]).tobytes() for name in index.names]
    return distances.tolist(), ids.tolist(), search_images(index, query, verify=True), index.names, frames


def objects(url):
    return {file.name for file in open_storage(url).list()}


def watch(monkeypatch, name):
    """Return a list of the objects that later calls of a method of the store concern."""
    used, method = [], getattr(ObjectStore, name)

    def call(storage, *arguments):
        used.append(arguments[0])
        return method(storage, *arguments)

    monkeypatch.setattr(ObjectStore, name, call)
    return used


@pytest.mark.parametrize("kind", ["flat", "ivf-pq"])
def test_an_index_at_a_url_equals_a_local_one_after_every_change(kind, features, bucket, cache, tmp_path):
    first, more = features
    local, url = tmp_path / "index", f"{bucket}/index"
    settings = {"kind": kind, "segments": 2}
    assert build_index(first, url, **settings) == url
    build_index(first, local, **settings)
    changes = [
        lambda index: add_images(index, more),
        lambda index: remove_images(index, ["1.jpg", "5.jpg"]),
        lambda index: compact_index(index),
        lambda index: add_images(index, more),
    ]
    assert answers(Index(url)) == answers(Index(local))
    for change in changes:
        assert change(url) == change(local)
        # Another machine has no copies.
        shutil.rmtree(cache)
        for in_memory in (True, False):
            assert answers(open_index(url, in_memory=in_memory)) == answers(Index(local))
        assert Index(url).info() == Index(local).info()
        Index(url).verify()
        assert objects(url) == {"meta.json", *Index(url).meta["files"]}
    assert Index(url).name == url


def test_a_reader_keeps_its_state_while_the_index_changes(features, bucket, tmp_path):
    first, _ = features
    url = build_index(first, f"{bucket}/index")
    build_index(first, tmp_path / "index")
    reader = Index(url)
    remove_images(url, ["2.jpg"])
    compact_index(url)
    assert "2.jpg" not in Index(url).names
    assert answers(reader) == answers(Index(tmp_path / "index"))


def test_files_are_downloaded_once(features, bucket, cache, monkeypatch):
    first, more = features
    url = build_index(first, f"{bucket}/index")
    downloaded = watch(monkeypatch, "stream")
    Index(url)
    assert downloaded == [], "the machine that built the index has its files"
    shutil.rmtree(cache)
    files = set(Index(url).meta["files"])
    assert sorted(downloaded) == sorted(files)
    downloaded.clear()
    Index(url)
    assert downloaded == []
    (copy,) = cache.glob("indexes/*/segment-*")
    copy.write_bytes(copy.read_bytes()[:-1])
    Index(url)
    assert downloaded == [copy.name], "a truncated copy is replaced"
    add_images(url, more)
    assert {path.name for path in cache.glob("indexes/*/*")} >= set(Index(url).meta["files"])
    assert downloaded == [copy.name]


def test_changes_download_only_what_they_read(features, bucket, cache, monkeypatch):
    first, more = features
    url = build_index(first, f"{bucket}/index", kind="ivf")
    downloaded = watch(monkeypatch, "stream")
    for change, expected in (
        (lambda: remove_images(url, ["0.jpg"]), ["images"]),
        (lambda: add_images(url, more), ["images", "trained"]),
        (lambda: build_index(more, f"{bucket}/shard", quantiser=url), ["trained"]),
    ):
        shutil.rmtree(cache)
        downloaded.clear()
        change()
        assert sorted(name.partition("-")[0] for name in downloaded) == expected


def test_a_copy_of_a_local_index_opens_at_a_url_and_back(features, bucket, tmp_path):
    first, more = features
    local, url = build_index(first, tmp_path / "index"), f"{bucket}/index"
    for path in sorted(local.iterdir()):
        open_storage(url).write(path.name, path.read_bytes())
    expected = answers(Index(local))
    assert answers(Index(url)) == expected
    add_images(url, more)
    remove_images(url, ["5.jpg", "6.jpg"])
    assert answers(Index(url)) == expected
    back = tmp_path / "back"
    back.mkdir()
    for name in objects(url):
        (back / name).write_bytes(open_storage(url).read(name))
    assert answers(Index(back)) == expected
    add_images(back, features_of(tmp_path / "new", [7]))
    Index(back).verify()


def test_shards_at_a_url_equal_a_local_index(features, bucket, tmp_path):
    trained = train_index(features[0], f"{bucket}/trained", kind="ivf", descriptors=300)
    for number, part in enumerate(features):
        build_index(part, f"{bucket}/shards/{number}.index", quantiser=trained)
    local = build_index(features[0], tmp_path / "index", quantiser=trained)
    add_images(local, features[1])
    with open_index(f"{bucket}/shards") as remote:
        assert isinstance(remote, ShardedIndex)
        assert remote.folders == [f"{bucket}/shards/{number}.index" for number in range(2)]
        assert answers(remote) == answers(Index(local))


def test_features_and_index_in_an_object_store(features, bucket, tmp_path):
    for path in features[0].folder.iterdir():
        open_storage(f"{bucket}/features").write(path.name, path.read_bytes())
    url = build_index(f"{bucket}/features", f"{bucket}/index")
    Index(url).verify(f"{bucket}/features")
    assert add_images(url, f"{bucket}/features") == IndexChange(unchanged=5)
    assert answers(Index(url)) == answers(Index(build_index(features[0], tmp_path / "index")))


def test_a_killed_upload_leaves_the_old_or_the_new_state(features, bucket, tmp_path):
    first, more = features
    states = []
    # segment, frames, images, meta.json, and the deletion of the old images
    for operation in range(1, 7):
        url = build_index(first, f"{bucket}/{operation}")
        ran = run_forked(KILLED_CHANGE, url, more.folder, operation)
        assert ran.returncode == (0 if operation == 6 else -signal.SIGKILL), ran.stderr
        index = Index(url)
        index.verify()
        states.append(len(index.names))
    assert states == [5, 5, 5, 5, 7, 7]
    # The next change works, and keeps what may belong to a running change.
    url = f"{bucket}/4"
    remove_images(url, ["0.jpg"])
    left = objects(url) - {"meta.json", *Index(url).meta["files"]}
    assert {name.partition("-")[0] for name in left} == {"segment", "frames", "images"}
    assert add_images(url, more).added == 2


def test_only_old_files_of_the_index_are_deleted_if_no_state_lists_them(features, bucket, monkeypatch):
    url = build_index(features[0], f"{bucket}/index")
    now, day = 1_800_000_000_000_000_000, 24 * 3600 * 10**9
    name = "segment-00000{}-0123456789abcdef.faiss".format
    times = {name(7): now - 2 * day, name(8): now - day // 2, name(9): 0, "notes.txt": now - 2 * day}
    for file in times:
        open_storage(url).write(file, b"x")
    listed = ObjectStore.list

    def list_with_times(storage):
        for file in listed(storage):
            yield StoredFile(file.name, f"1-{times.get(file.name, now)}")

    # The times of the server cannot be set.
    monkeypatch.setattr(ObjectStore, "list", list_with_times)
    remove_images(url, ["0.jpg"])
    assert objects(url) == {"meta.json", *Index(url).meta["files"], name(8), name(9), "notes.txt"}


@pytest.mark.parametrize("file", ["segment", "trained", "images", "frames"])
def test_damaged_and_truncated_and_missing_objects_are_refused(file, features, bucket, cache):
    url = build_index(features[0], f"{bucket}/index")
    shutil.rmtree(cache)
    storage = open_storage(url)
    (name,) = (name for name in objects(url) if name.startswith(file))
    content = storage.read(name)
    storage.write(name, content[:-9] + bytes(9 * [255]))
    with pytest.raises(DataError, match=f"^{url}/{name}: expected SHA-256 .*Copy or build the index again.$"):
        Index(url)
    storage.write(name, content[:-9])
    with pytest.raises(DataError, match=rf"^{url}/{name}: expected [\d,]+ bytes, got [\d,]+\. Copy"):
        Index(url)
    storage.delete(name)
    with pytest.raises(DataError, match=f"^{url}/{name}: missing. Copy"):
        Index(url)
    assert not list(cache.glob(f"indexes/*/{file}*"))
    storage.write(name, content)
    Index(url).verify()
    # Copies are intact, and the object is not.
    storage.write(name, content[:-1])
    with pytest.raises(DataError, match=f"^{url}/{name}: expected"):
        Index(url).verify()


def test_a_writer_that_meets_another_change_is_refused(features, bucket, monkeypatch):
    first, more = features
    url = build_index(first, f"{bucket}/index")
    write, others = ObjectStore.write, []

    def write_after_another_change(storage, name, content):
        if not others:
            others.append(name)
            # Another machine has its own cache.
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("DOAP_CACHE", os.environ["DOAP_CACHE"] + "-other")
                remove_images(url, ["0.jpg"])
        write(storage, name, content)

    monkeypatch.setattr(ObjectStore, "write", write_after_another_change)
    with pytest.raises(DataError, match=f"^{url}: another process has changed the index. Run the same command again"):
        add_images(url, more)
    index = Index(url)
    index.verify()
    assert index.names == ["1.jpg", "2.jpg", "3.jpg", "4.jpg"]
    assert add_images(url, more).added == 2


def test_a_second_writer_on_the_same_machine_is_refused(features, bucket):
    url = build_index(features[0], f"{bucket}/index")
    with snapshots.change_index(open_storage(url)), pytest.raises(DataError, match="is writing to it"):
        remove_images(url, ["0.jpg"])
    assert "0.jpg" in Index(url).names


def test_a_reader_that_meets_a_change_while_it_downloads_sees_the_new_state(features, bucket, cache, monkeypatch):
    url = build_index(features[0], f"{bucket}/index")
    remove_images(url, ["0.jpg"])
    shutil.rmtree(cache)
    stream, changed = ObjectStore.stream, []

    def stream_after_a_change(storage, name):
        if not changed:
            changed.append(name)
            compact_index(url)
        return stream(storage, name)

    monkeypatch.setattr(ObjectStore, "stream", stream_after_a_change)
    index = Index(url)
    assert index.info().removed_descriptors == 0
    assert index.names == ["1.jpg", "2.jpg", "3.jpg", "4.jpg"]


def test_names_of_files_cannot_leave_the_cache(features, bucket, cache):
    url = build_index(features[0], f"{bucket}/index")
    content = open_storage(url).read("meta.json").decode()
    identity = next(iter(json.loads(content)["files"].values()))
    open_storage(url).write("meta.json", content.replace(identity["sha256"], "../../../escape" + "0" * 49).encode())
    with pytest.raises(DataError, match=r"meta.json: not an index"):
        Index(url)


def test_existing_missing_and_forbidden_indexes_are_one_line(features, bucket, monkeypatch):
    first, _ = features
    url = build_index(first, f"{bucket}/index")
    with pytest.raises(DataError, match=f"^{url}: already exists"):
        build_index(first, url)
    with pytest.raises(DataError, match=f"^{bucket}/none: not an index"):
        open_index(f"{bucket}/none")
    with pytest.raises(DataError, match=f"^{bucket}/none: not an index"):
        remove_images(f"{bucket}/none", ["0.jpg"])
    with pytest.raises(ArgumentError, match=rf"^none.jpg: not in {url}: no such image"):
        remove_images(url, ["none.jpg"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-0123456789")
    for call in (lambda: open_index(url), lambda: build_index(first, f"{bucket}/b"), lambda: compact_index(url)):
        with pytest.raises(DataError, match=r"cannot be accessed: access denied. Check the credentials") as caught:
            call()
        assert not any(secret in str(caught.value) for secret in (SECRET, KEY, "another-secret"))


def test_the_commands_take_urls(bucket, tmp_path, monkeypatch):
    photos, features, url = tmp_path / "photos", tmp_path / "features", f"{bucket}/index"
    write_views(photos, scenes=2, views=2)
    extract_folder(photos, features, "rootsift", max_keypoints=40, workers=1)

    def doap(*words, code=0):
        start = "import doap.scale.storage as s; s.DELAYS = (0.1,); from doap.cli import main; main()"
        ran = run_forked(start, *words)
        assert ran.returncode == code, ran.stderr
        return json.loads(ran.stdout) if not code else ran.stderr

    built = doap("index", "build", features, "--out", url, "--json")
    assert (built["index"], built["images"]) == (url, 4)
    assert doap("index", "add", features, "--index", url, "--json")["unchanged"] == 4
    assert doap("index", "remove", "0/1.png", "--index", url, "--json")["removed"] == 1
    assert doap("index", "compact", url, "--json")["descriptors"] == 40
    assert doap("index", "verify", url, "--json") == {"index": url, "files": 4}
    found = doap("index", "search", photos / "1" / "0.png", "--index", url, "--json")["found"]
    assert [one["name"] for one in found] == ["1/1.png", "0/0.png"]
    assert doap("pairs", features, "--index", url, "--out", tmp_path / "pairs.txt", "--json")["pairs"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert doap("index", "info", url, code=1).splitlines() == [
        f"doap: {url}/meta.json: cannot be accessed: no connection to the server. Run the same command again when it "
        "is available."
    ]
