"""hloc files: readable by hloc, never half-written, and consistent with the images."""

import shutil
import signal
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from doap import pipeline
from doap._support.errors import DataError
from doap.baselines import rootsift, teblid
from doap.export.hloc import _update, feature_arrays, match_arrays, pair_group, write_hloc
from doap.types import Features
from oracles.forked import run_forked
from oracles.full_disk import full_disk
from oracles.photos import write_photo

h5py = pytest.importorskip("h5py")
PAIRS = [("a.png", "sub/b.png"), ("a.png", "sub/deep/c.png")]


@pytest.fixture
def images(tmp_path):
    for name, seed in {"a.png": 0, "sub/b.png": 1, "sub/deep/c.png": 0}.items():
        write_photo(tmp_path / "images" / name, seed, 120, 160)
    return tmp_path / "images"


def run(images, out, describer=rootsift, **changes):
    return write_hloc(images, out, describer(), **{"max_keypoints": 50, **changes})


def match(images, folder, pairs=PAIRS, **changes):
    """Write folder/f.h5 and folder/m.h5, by default without a ratio test."""
    return run(images, folder / "f.h5", pairs=pairs, matches=folder / "m.h5", **{"ratio": 1, **changes})


def files(folder):
    return [(folder / name).read_bytes() for name in ("f.h5", "m.h5")]


def write_to(path, name, arrays):
    _update(path, "features", {}, [(name, arrays)])


def hloc_names(path):
    """As hloc's `list_h5_names`: the parents of all datasets."""
    return {name.rpartition("/")[0] for name in contents(path)}


def hloc_matches(path, name0, name1):
    """As hloc's `get_matches`: the pair in either order, without −1."""
    with h5py.File(path, "r", libver="latest") as file:
        pair, reverse = "/".join(name.replace("/", "-") for name in (name0, name1)), False
        if pair not in file:
            pair, reverse = "/".join(name.replace("/", "-") for name in (name1, name0)), True
        matches0, scores = np.array(file[pair]["matches0"]), np.array(file[pair]["matching_scores0"])
    first = np.where(matches0 != -1)[0]
    matches = np.stack([first, matches0[first]], -1)
    return np.flip(matches, -1) if reverse else matches, scores[first]


def contents(path):
    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def test_features_have_the_layout_of_hloc(images, tmp_path):
    summary = run(images, tmp_path / "f.h5")
    assert (summary.extracted, summary.reused, summary.skipped) == (3, 0, {})
    assert (summary.out, summary.matches, summary.pairs) == (tmp_path / "f.h5", None, 0)
    assert hloc_names(tmp_path / "f.h5") == {"a.png", "sub/b.png", "sub/deep/c.png"}
    features = pipeline.extract(images / "sub" / "b.png", rootsift(), max_keypoints=50)
    with h5py.File(tmp_path / "f.h5", "r") as file:
        group = {name: np.array(values) for name, values in file["sub/b.png"].items()}
    assert set(group) == {"keypoints", "descriptors", "scores", "image_size"}
    # Pixel centres are at integers; hloc adds 0.5 for COLMAP.
    assert np.array_equal(group["keypoints"], features.keypoints)
    assert np.array_equal(group["descriptors"], features.descriptors.T)
    assert np.array_equal(group["scores"], features.responses)
    assert group["image_size"].tolist() == [160, 120]
    assert (group["keypoints"].dtype, group["descriptors"].dtype) == (np.float32, np.float32)


def test_an_image_without_keypoints_has_empty_arrays(images, tmp_path):
    cv2.imwrite(str(images / "black.png"), np.zeros((50, 60), np.uint8))
    run(images, tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert file["black.png"]["keypoints"].shape == (0, 2)
        assert file["black.png"]["descriptors"].shape == (128, 0)


def test_matches_equal_doap_match_with_the_scores_of_hloc(images, tmp_path):
    summary = match(images, tmp_path)
    assert (summary.matches, summary.pairs) == (tmp_path / "m.h5", 2)
    features0, features1 = (
        pipeline.extract(images / name, rootsift(), max_keypoints=50) for name in ("a.png", "sub/b.png")
    )
    expected = pipeline.match(features0, features1).indices
    matches, scores = hloc_matches(tmp_path / "m.h5", "a.png", "sub/b.png")
    assert np.array_equal(matches, expected)
    cosines = (features0.descriptors[expected[:, 0]] * features1.descriptors[expected[:, 1]]).sum(dim=1)
    np.testing.assert_allclose(scores, (cosines + 1) / 2, atol=1e-5)
    reverse, _ = hloc_matches(tmp_path / "m.h5", "sub/b.png", "a.png")
    assert np.array_equal(reverse, matches[:, ::-1])
    # A photo and its copy: keypoints match themselves.
    same, scores = hloc_matches(tmp_path / "m.h5", "a.png", "sub/deep/c.png")
    assert (same[:, 0] == same[:, 1]).mean() > 0.9
    np.testing.assert_allclose(scores, 1, atol=1e-5)


def test_without_a_ratio_matches_pass_that_of_the_descriptor(images, tmp_path):
    def strict():
        describer = rootsift()
        describer.ratio = 0.97
        return describer

    match(images, tmp_path, describer=strict, ratio=None)
    features = (pipeline.extract(images / name, rootsift(), max_keypoints=50) for name in ("a.png", "sub/b.png"))
    expected = pipeline.match(*features, ratio=0.97).indices
    assert np.array_equal(hloc_matches(tmp_path / "m.h5", "a.png", "sub/b.png")[0], expected)
    assert len(expected)


def test_binary_descriptors_stay_packed_and_are_scored_by_equal_bits(images, tmp_path):
    match(images, tmp_path, describer=teblid)
    with h5py.File(tmp_path / "f.h5", "r") as file:
        stored = file["a.png"]["descriptors"]
        assert (stored.shape, stored.dtype) == ((32, 50), np.uint8)
    codes = [
        np.unpackbits(pipeline.extract(images / name, teblid(), max_keypoints=50).descriptors.numpy(), axis=1)
        for name in ("a.png", "sub/b.png")
    ]
    matches, scores = hloc_matches(tmp_path / "m.h5", "a.png", "sub/b.png")
    assert len(matches) > 0
    expected = (codes[0][matches[:, 0]] == codes[1][matches[:, 1]]).mean(axis=1)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_more_keypoints_than_16_bits_can_count(tmp_path):
    count = 40_000
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 16), np.uint8))
    features = Features(np.zeros((count, 2, 3), np.float32), np.zeros(count, np.float32), codes, (9, 9))
    write_to(tmp_path / "f.h5", "b.jpg", feature_arrays(features))
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert file["b.jpg"]["keypoints"].shape == (count, 2)
    write_to(tmp_path / "m.h5", pair_group("a.jpg", "b.jpg"), match_arrays(codes[[39_999, 32_768]], codes))
    read, scores = hloc_matches(tmp_path / "m.h5", "a.jpg", "b.jpg")
    assert read.tolist() == [[0, 39_999], [1, 32_768]]
    assert scores.tolist() == [1.0, 1.0]
    with h5py.File(tmp_path / "m.h5", "r") as file:
        assert file["a.jpg/b.jpg"]["matches0"].dtype == np.int32


def assert_same(folder0, folder1):
    for name in ("f.h5", "m.h5"):
        arrays0, arrays1 = contents(folder0 / name), contents(folder1 / name)
        assert arrays0.keys() == arrays1.keys()
        assert all(np.array_equal(arrays0[key], arrays1[key]) for key in arrays0)


@pytest.mark.parametrize("settings", [{}, {"detector": "orb"}, {"ratio": 0.8}, {"pairs": PAIRS[1:]}])
def test_an_update_equals_starting_over(images, tmp_path, settings):
    match(images, tmp_path)
    write_photo(images / "d.png", 5, 120, 160)
    write_photo(images / "sub" / "b.png", 7, 120, 160)
    match(images, tmp_path, **settings)
    match(images, tmp_path / "fresh", **settings)
    assert_same(tmp_path, tmp_path / "fresh")


def test_files_follow_removed_images(images, tmp_path):
    match(images, tmp_path)
    (images / "sub" / "deep" / "c.png").unlink()
    summary = match(images, tmp_path, PAIRS[:1])
    assert (summary.extracted, summary.reused, summary.pairs) == (0, 2, 1)
    assert hloc_names(tmp_path / "f.h5") == {"a.png", "sub/b.png"}
    assert hloc_names(tmp_path / "m.h5") == {"a.png/sub-b.png"}


def test_pairs_with_an_unreadable_image_are_left_out(images, tmp_path):
    (images / "empty.jpg").touch()
    summary = match(images, tmp_path, [("a.png", "empty.jpg"), ("a.png", "sub/b.png")])
    assert (summary.pairs, set(summary.skipped)) == (1, {"empty.jpg"})
    assert hloc_names(tmp_path / "m.h5") == {"a.png/sub-b.png"}


HANGS = Path(__file__).parents[1] / "regressions" / "hloc-hang.h5"


@pytest.mark.parametrize("foreign", ["text", "hdf5", "hang", "matches"])
def test_a_file_that_doap_did_not_write_there_is_not_overwritten(images, tmp_path, foreign):
    """HDF5 never returns from `hang`, which the fuzzer found, so it must not be opened with HDF5."""
    out = tmp_path / "f.h5"
    if foreign == "text":
        out.write_text("a letter")
    elif foreign == "hdf5":
        h5py.File(out, "w").close()
    elif foreign == "hang":
        shutil.copy(HANGS, out)
    else:
        match(images, tmp_path)
        out = tmp_path / "m.h5"
    before = out.read_bytes()
    with pytest.raises(DataError):
        run(images, out)
    assert out.read_bytes() == before


@pytest.mark.parametrize("limit", [100, 600, 2_000, 45_000, 180_000, 320_000])
def test_a_full_disk_raises_one_error_and_leaves_no_file(tmp_path, limit):
    groups = ((str(number), {"values": np.arange(5000) + number}) for number in range(8))
    with full_disk(limit), pytest.raises(DataError):
        _update(tmp_path / "a.h5", "features", {}, groups)
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
from doap.baselines import rootsift
from doap.export import hloc

def arrays(*_):
    os.kill(os.getpid(), signal.SIGKILL)

images, out, matches, moment = sys.argv[1:]
setattr(hloc, moment, arrays)
pairs = [("a.png", "sub/b.png"), ("a.png", "sub/deep/c.png")]
hloc.write_hloc(images, out, rootsift(), max_keypoints=50, pairs=pairs, matches=matches)
"""


@pytest.mark.parametrize("moment", ["feature_arrays", "match_arrays"])
def test_a_killed_run_leaves_complete_files_only_and_resumes(images, tmp_path, moment):
    match(images, tmp_path, PAIRS[:1])
    before = files(tmp_path)
    write_photo(images / "d.png", 5, 120, 160)
    ran = run_forked(KILLED, images, tmp_path / "f.h5", tmp_path / "m.h5", moment)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert files(tmp_path)[moment == "match_arrays" :] == before[moment == "match_arrays" :]
    summary = match(images, tmp_path)
    assert (summary.extracted, summary.reused) == (0, 4)
    match(images, tmp_path / "fresh")
    assert_same(tmp_path, tmp_path / "fresh")
    assert not list(tmp_path.glob("*.unfinished"))


def test_names_that_hloc_cannot_distinguish_are_refused(tmp_path):
    for name in ("a/b-c.png", "a-b/c.png", "d.png"):
        write_photo(tmp_path / "images" / name, 0, 60, 60)
    with pytest.raises(DataError):
        match(tmp_path / "images", tmp_path, [("a/b-c.png", "d.png"), ("a-b/c.png", "d.png")])
    assert not (tmp_path / "f.h5").exists()
