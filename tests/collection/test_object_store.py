"""Images and features in an object store: a real S3 server that is killed, slow, or refuses requests."""

import logging
import pickle
import shutil
import threading
import time

import pytest

from doap._support.errors import ArgumentError, DataError
from doap.collection import FeatureSet, build_index, extract_folder, search_images
from doap.collection.storage import LocalFolder, ObjectStore, open_storage
from doap.images import list_images
from oracles.forked import run_forked
from oracles.object_store import KEY, SECRET, Proxy
from oracles.photos import write_photo

# The tests share one server, in one worker of xdist.
pytestmark = pytest.mark.xdist_group("object store")
PHOTOS = 6


@pytest.fixture
def photos(bucket, tmp_path):
    """Photos in a local folder and in the object store; the folder and the URL above."""
    for seed in range(PHOTOS):
        write_photo(tmp_path / "photos" / f"{seed % 2}" / f"{seed}.png", seed, 100, 120 + seed)
    (tmp_path / "photos" / "cut.png").write_bytes((tmp_path / "photos" / "0" / "0.png").read_bytes()[:1000])
    storage = open_storage(f"{bucket}/photos")
    for path in list_images(tmp_path / "photos"):
        storage.write(path.relative_to(tmp_path / "photos").as_posix(), path.read_bytes())
    return tmp_path / "photos", bucket


def run(images, out, **settings):
    return extract_folder(images, out, "rootsift", **{"max_keypoints": 40, "workers": 1} | settings)


def rows_of(out):
    """Return the rows by name: workers finish in any order."""
    return sorted(
        (one.name, one.checksum, one.features.frames.tobytes(), one.features.descriptors.numpy().tobytes())
        for one in FeatureSet(out).stream()
    )


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_every_storage_keeps_the_same_promises(kind, tmp_path, request, monkeypatch):
    monkeypatch.setattr("doap.collection.storage.ATTEMPTS", 2)
    storage = open_storage(tmp_path if kind == "local" else request.getfixturevalue("bucket"))
    assert isinstance(storage, LocalFolder if kind == "local" else ObjectStore)
    assert list(storage.list()) == []
    if kind == "local":
        (tmp_path / "a").mkdir()
    storage.write("a/b.txt", b"first")
    ((_, stamp),) = storage.list()
    storage.write("a/b.txt", b"second")
    storage.write("c d.txt", b"x" * 6_000_000)
    assert storage.read("a/b.txt") == b"second"
    stamps = {file.name: file.stamp for file in storage.list()}
    assert stamps.keys() == {"a/b.txt", "c d.txt"}
    assert stamps["a/b.txt"] != stamp
    assert {file.name: file.stamp for file in storage.list()} == stamps
    with pickle.loads(pickle.dumps(storage)).open("c d.txt") as file:
        assert (file.size(), file.read(3)) == (6_000_000, b"xxx")
    for _ in range(2):
        storage.delete("c d.txt")
    with pytest.raises(FileNotFoundError):
        storage.read("c d.txt")


@pytest.mark.parametrize("workers", [1, 2])
def test_extraction_from_and_to_an_object_store_equals_the_local_one(workers, photos, tmp_path):
    folder, url = photos
    done = run(f"{url}/photos", f"{url}/features", workers=workers)
    assert (done.out, done.extracted, list(done.skipped)) == (f"{url}/features", PHOTOS, ["cut.png"])
    assert done.skipped["cut.png"].startswith(f"{url}/photos/cut.png: ")
    run(folder, tmp_path / "local")
    assert rows_of(f"{url}/features") == rows_of(tmp_path / "local")
    assert run(f"{url}/photos", f"{url}/features").reused == PHOTOS
    changed = write_photo(tmp_path / "new.png", 99, 100, 120).read_bytes()
    open_storage(f"{url}/photos").write("0/0.png", changed)
    again = run(f"{url}/photos", f"{url}/features")
    assert (again.extracted, again.reused) == (1, PHOTOS - 1)


def test_an_index_is_built_from_features_in_an_object_store(photos, tmp_path):
    folder, url = photos
    run(f"{url}/photos", f"{url}/features")
    index = build_index(f"{url}/features", tmp_path / "index")
    # An indexed image is not its own result, but a copy of it is.
    found = search_images(index, shutil.copy(folder / "0" / "2.png", tmp_path / "query.png"), top=1)
    assert [one.name for one in found] == ["0/2.png"]


def test_a_restarted_server_loses_and_repeats_nothing(server, photos, tmp_path):
    folder, url = photos
    restarted = []

    def restart():
        time.sleep(1.5)
        server.start()

    def report(done, total, text):
        if done == 2 and not restarted:
            server.kill()
            restarted.append(threading.Thread(target=restart))
            restarted[0].start()

    done = run(f"{url}/photos", f"{url}/features", progress=report)
    restarted[0].join()
    assert (done.extracted, list(done.skipped)) == (PHOTOS, ["cut.png"])
    assert server.process.poll() is None
    run(folder, tmp_path / "local")
    assert rows_of(f"{url}/features") == rows_of(tmp_path / "local")


def test_slow_answers_and_503_are_waited_for(server, photos, monkeypatch):
    proxy = Proxy(server.port, refuse=4, delay=0.3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    _, url = photos
    assert run(f"{url}/photos", f"{url}/features").extracted == PHOTOS
    assert proxy.refused == 4
    proxy.close()


def test_wrong_credentials_are_one_line_without_the_secret(photos, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    _, url = photos
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-0123456789")
    with pytest.raises(DataError) as caught:
        run(f"{url}/photos", f"{url}/features")
    assert str(caught.value).startswith(f"{url}/photos: cannot be accessed: ")
    assert not any(secret in f"{caught.value}{caplog.text}" for secret in (SECRET, KEY, "another-secret"))


def test_a_server_that_never_answers_is_one_line_of_the_command(server, photos, tmp_path, monkeypatch):
    _, url = photos
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    code = "import doap.collection.storage as s; s.ATTEMPTS = 1; from doap.cli import main; main()"
    words = ["extract", f"{url}/photos", "--out", str(tmp_path / "f")]
    ran = run_forked(code, *words)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith(f"doap: {url}/photos: cannot be accessed: ")


@pytest.mark.parametrize(
    "url",
    ["s3://key:secret@bucket/photos", "s3://bucket/photos?region=x&secret_key=secret", "ftp://host/photos", "s3://"],
)
def test_urls_that_cannot_work_are_refused_and_never_shown_with_secrets(url):
    with pytest.raises(ArgumentError) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


def test_a_file_url_is_a_local_folder(tmp_path):
    assert open_storage(f"file://{tmp_path}/a%20b") == LocalFolder(tmp_path / "a b")
