"""Two processes that write the same output: the second one is refused, and the first one's output is complete."""

import pytest

import doap
from doap._support.errors import DataError
from doap._support.files import OutputLock
from doap.collection.index import Index, build_index
from doap.data import SetWriter
from doap.training.config import Config
from oracles.file_samples import DESCRIPTOR
from oracles.photos import write_photo


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(2):
        write_photo(folder / f"{seed}.png", seed, 100, 120)
    return folder


def test_a_feature_set_has_one_writer(photos, tmp_path):
    out = tmp_path / "features"
    out.mkdir()
    with OutputLock(out, inside=True), pytest.raises(DataError):
        doap.extract_folder(photos, out, DESCRIPTOR, workers=1)
    assert doap.extract_folder(photos, out, DESCRIPTOR, workers=1).extracted == 2
    assert not list(out.glob("*.lock"))


def test_a_database_has_one_writer(photos, tmp_path):
    pytest.importorskip("pycolmap")
    with OutputLock(tmp_path / "a.db"), pytest.raises(DataError):
        doap.write_colmap(photos, tmp_path / "a.db", DESCRIPTOR)


@pytest.mark.parametrize("locked", ["f.h5", "m.h5"])
def test_both_files_of_hloc_have_one_writer(photos, tmp_path, locked):
    pytest.importorskip("h5py")
    with OutputLock(tmp_path / locked), pytest.raises(DataError):
        doap.write_hloc(photos, tmp_path / "f.h5", DESCRIPTOR, pairs="exhaustive", matches=tmp_path / "m.h5")


def test_an_index_has_one_writer(photos, tmp_path):
    pytest.importorskip("faiss")
    doap.extract_folder(photos, tmp_path / "features", DESCRIPTOR, workers=1)
    with OutputLock(tmp_path / "index"), pytest.raises(DataError):
        build_index(tmp_path / "features", tmp_path / "index")
    build_index(tmp_path / "features", tmp_path / "index")
    with OutputLock(tmp_path / "index", inside=True):
        with pytest.raises(DataError):
            Index(tmp_path / "index").add(tmp_path / "features")
        with pytest.raises(DataError):
            Index(tmp_path / "index").remove(["0.png"])


def test_a_patch_set_has_one_writer(tmp_path):
    with SetWriter(tmp_path / "set", 8, {}, []), pytest.raises(DataError):
        SetWriter(tmp_path / "set", 8, {}, [])
    with SetWriter(tmp_path / "set", 8, {}, []) as writer:
        assert writer.done == 0


def test_a_training_run_has_one_writer(tmp_path):
    with OutputLock(tmp_path, inside=True), pytest.raises(DataError):
        doap.train(Config(), tmp_path)
