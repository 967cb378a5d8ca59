"""hloc's files: read as hloc reads them, resumed after any death, never half a group."""

import json
import os
import signal
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch

from doap import pipeline
from doap.baselines import rootsift, teblid
from doap.errors import ArgumentError, DataError, MissingExtra
from doap.export.hloc import extract_features, match_features, write_features, write_matches
from doap.images import read_grey
from doap.types import Features
from oracles.photos import write_photo

h5py = pytest.importorskip("h5py")


@pytest.fixture
def images(tmp_path):
    for name, seed in {"a.png": 0, "sub/b.png": 1, "sub/deep/c.png": 0}.items():
        write_photo(tmp_path / "images" / name, seed, 120, 160)
    return tmp_path / "images"


def run(images, out, describer=rootsift, **changes):
    return extract_features(images, out, describer(), **{"descriptor_name": "peer", "max_keypoints": 50, **changes})


def hloc_names(path):
    """hloc's `list_h5_names`: the parents of all datasets."""
    return {name.rpartition("/")[0] for name in contents(path)}


def hloc_matches(path, name0, name1):
    """hloc's `get_matches`: the pair in any order, and what is not −1."""
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


def assert_same(path0, path1):
    contents0, contents1 = contents(path0), contents(path1)
    assert contents0.keys() == contents1.keys()
    assert all(np.array_equal(contents0[name], contents1[name]) for name in contents0)


def test_features_are_laid_out_as_hloc_reads_them(images, tmp_path):
    done = run(images, tmp_path / "f.h5")
    assert (done.written, done.kept, done.skipped) == (3, 0, {})
    assert hloc_names(tmp_path / "f.h5") == {"a.png", "sub/b.png", "sub/deep/c.png"}
    features = pipeline.extract(images / "sub" / "b.png", rootsift(), max_keypoints=50)
    with h5py.File(tmp_path / "f.h5", "r") as file:
        group = {name: np.array(values) for name, values in file["sub/b.png"].items()}
    assert set(group) == {"keypoints", "descriptors", "scores", "image_size"}
    # Pixel centres at integers: hloc itself adds 0.5 for COLMAP.
    assert np.array_equal(group["keypoints"], features.keypoints)
    assert np.array_equal(group["descriptors"], features.descriptors.T)
    assert np.array_equal(group["scores"], features.responses)
    assert group["image_size"].tolist() == [160, 120]
    assert (group["keypoints"].dtype, group["descriptors"].dtype) == (np.float32, np.float32)


def test_an_image_is_read_as_it_is_stored(images, tmp_path):
    """hloc and COLMAP ignore the EXIF orientation, so a file that says "turn me" is described unturned."""
    from PIL import Image

    picture = Image.open(images / "a.png")
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(images / "turned.jpg", exif=exif, quality=95)
    assert read_grey(images / "turned.jpg").shape == (120, 160)
    run(images, tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert file["turned.jpg"]["image_size"][()].tolist() == [160, 120]


def test_an_image_without_keypoints_is_there_with_the_right_dimensions(images, tmp_path):
    cv2.imwrite(str(images / "black.png"), np.zeros((50, 60), np.uint8))
    run(images, tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert file["black.png"]["keypoints"].shape == (0, 2)
        assert file["black.png"]["descriptors"].shape == (128, 0)


def test_matches_are_our_mutual_ones_with_the_scores_of_hloc(images, tmp_path):
    run(images, tmp_path / "f.h5")
    done = match_features(tmp_path / "f.h5", [("a.png", "sub/b.png"), ("a.png", "sub/deep/c.png")], tmp_path / "m.h5")
    assert (done.written, done.kept) == (2, 0)
    features0, features1 = (
        pipeline.extract(images / name, rootsift(), max_keypoints=50) for name in ("a.png", "sub/b.png")
    )
    expected = pipeline.match(features0, features1)
    matches, scores = hloc_matches(tmp_path / "m.h5", "a.png", "sub/b.png")
    assert np.array_equal(matches, expected)
    cosines = (features0.descriptors[expected[:, 0]] * features1.descriptors[expected[:, 1]]).sum(dim=1)
    np.testing.assert_allclose(scores, (cosines + 1) / 2, atol=1e-5)
    turned, _ = hloc_matches(tmp_path / "m.h5", "sub/b.png", "a.png")
    assert np.array_equal(turned, matches[:, ::-1])
    # The photo and its copy: each keypoint finds itself.
    same, scores = hloc_matches(tmp_path / "m.h5", "a.png", "sub/deep/c.png")
    assert (same[:, 0] == same[:, 1]).mean() > 0.9
    np.testing.assert_allclose(scores, 1, atol=1e-5)


def test_bits_stay_bytes_and_their_scores_are_the_share_of_equal_ones(images, tmp_path):
    run(images, tmp_path / "f.h5", teblid)
    with h5py.File(tmp_path / "f.h5", "r") as file:
        stored = file["a.png"]["descriptors"]
        assert (stored.shape, stored.dtype) == ((32, 50), np.uint8)
    match_features(tmp_path / "f.h5", [("a.png", "sub/b.png")], tmp_path / "m.h5")
    codes = [
        np.unpackbits(pipeline.extract(images / name, teblid(), max_keypoints=50).descriptors.numpy(), axis=1)
        for name in ("a.png", "sub/b.png")
    ]
    matches, scores = hloc_matches(tmp_path / "m.h5", "a.png", "sub/b.png")
    assert len(matches) > 0
    expected = (codes[0][matches[:, 0]] == codes[1][matches[:, 1]]).mean(axis=1)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_more_keypoints_than_16_bits_count_survive(tmp_path):
    count = 40_000
    features = Features(
        np.zeros((count, 2, 3), np.float32),
        np.zeros(count, np.float32),
        torch.zeros(count, 8, dtype=torch.uint8),
        (9, 9),
    )
    write_features(tmp_path / "f.h5", "a.jpg", features)
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert file["a.jpg"]["keypoints"].shape == (count, 2)
    matches = np.array([[0, 39_999], [39_999, 32_768]])
    write_matches(tmp_path / "m.h5", "a.jpg", "b.jpg", matches, np.array([0.5, 1.0]), count)
    read, scores = hloc_matches(tmp_path / "m.h5", "a.jpg", "b.jpg")
    assert np.array_equal(read, matches)
    assert scores.tolist() == [0.5, 1.0]
    with h5py.File(tmp_path / "m.h5", "r") as file:
        assert file["a.jpg/b.jpg"]["matches0"].dtype == np.int32


def test_a_group_is_written_in_place_of_the_one_before(tmp_path):
    for value in (0.25, 0.75):
        write_matches(tmp_path / "m.h5", "a/x.jpg", "b.jpg", np.array([[0, 1]]), np.array([value]), 3)
    _, scores = hloc_matches(tmp_path / "m.h5", "a/x.jpg", "b.jpg")
    assert scores.tolist() == [0.75]
    assert hloc_names(tmp_path / "m.h5") == {"a-x.jpg/b.jpg"}


def test_images_that_are_there_are_skipped_and_new_ones_added(images, tmp_path):
    run(images, tmp_path / "f.h5")
    before = (tmp_path / "f.h5").read_bytes()
    done = run(images, tmp_path / "f.h5")
    assert (done.written, done.kept) == (0, 3)
    assert (tmp_path / "f.h5").read_bytes() == before
    write_photo(images / "d.png", 5, 120, 160)
    done = run(images, tmp_path / "f.h5")
    assert (done.written, done.kept) == (1, 3)
    run(images, tmp_path / "anew.h5")
    assert_same(tmp_path / "f.h5", tmp_path / "anew.h5")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_keypoints": 60}, "expected most 60, got a file with 50"),
        ({"descriptor_name": "other"}, "expected descriptor 'other', got a file with 'peer'"),
    ],
)
def test_other_settings_need_another_file(images, tmp_path, change, words):
    run(images, tmp_path / "f.h5")
    before = (tmp_path / "f.h5").read_bytes()
    with pytest.raises(DataError, match=words):
        run(images, tmp_path / "f.h5", **change)
    assert (tmp_path / "f.h5").read_bytes() == before


def test_a_file_of_something_else_is_not_touched(images, tmp_path):
    (tmp_path / "f.h5").write_text("a letter")
    with pytest.raises(DataError, match="expected an HDF5 file, got another or a damaged one"):
        run(images, tmp_path / "f.h5")
    assert (tmp_path / "f.h5").read_text() == "a letter"


def test_an_image_that_cannot_be_read_is_told_and_left_out(images, tmp_path):
    (images / "cut.png").write_bytes((images / "a.png").read_bytes()[:2000])
    (images / "empty.jpg").touch()
    done = run(images, tmp_path / "f.h5")
    assert (done.written, set(done.skipped)) == (3, {"cut.png", "empty.jpg"})
    assert "truncated" in done.skipped["cut.png"]
    assert "empty" in done.skipped["empty.jpg"]
    assert hloc_names(tmp_path / "f.h5") == {"a.png", "sub/b.png", "sub/deep/c.png"}
    match_features(tmp_path / "f.h5", [("a.png", "cut.png"), ("a.png", "sub/b.png")], tmp_path / "m.h5")
    assert hloc_names(tmp_path / "m.h5") == {"a.png/sub-b.png"}
    # Mended, it is added.
    write_photo(images / "cut.png", 3, 120, 160)
    assert run(images, tmp_path / "f.h5").written == 1


def test_no_good_image_is_an_error_and_no_file(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "empty.jpg").touch()
    with pytest.raises(
        DataError, match=r"expected an image that can be read, got 1 that cannot; the first: .*empty\.jpg"
    ):
        run(tmp_path / "images", tmp_path / "f.h5")
    assert not list(tmp_path.glob("f.h5*"))


KILLED = """
import os, signal, sys
import h5py
from doap.export import hloc
from doap.baselines import rootsift

images, out, moment = sys.argv[1:]
write, calls = h5py.Group.create_dataset, []

def die(group, name, **values):
    made = write(group, name, **values)
    calls.append(name)
    if moment == "writing" and len(calls) == 6:
        group.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return made

h5py.Group.create_dataset = die

def report(done, total, name):
    if moment == "between" and done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

hloc.extract_features(images, out, rootsift(), descriptor_name="peer", max_keypoints=50, progress=report)
"""


@pytest.mark.parametrize(("moment", "kept"), [("between", 2), ("writing", 0)])
def test_a_killed_run_is_resumed_and_a_damaged_file_is_started_anew(images, tmp_path, moment, kept):
    """Killed between two images, those before are kept. Killed in the middle of writing, HDF5 has lost them."""
    out = tmp_path / "f.h5"
    ran = subprocess.run([sys.executable, "-c", KILLED, str(images), str(out), moment], env=os.environ, timeout=120)
    assert ran.returncode == -signal.SIGKILL
    assert not out.exists()
    assert (tmp_path / "f.h5.unfinished").exists()
    done = run(images, out)
    assert (done.written, done.kept) == (3 - kept, kept)
    assert not (tmp_path / "f.h5.unfinished").exists()
    run(images, tmp_path / "anew.h5")
    assert_same(out, tmp_path / "anew.h5")


def test_a_finished_file_survives_a_kill_while_images_are_added(images, tmp_path):
    out = tmp_path / "f.h5"
    run(images, out)
    before = contents(out)
    for seed in (5, 6):
        write_photo(images / f"new{seed}.png", seed, 120, 160)
    ran = subprocess.run([sys.executable, "-c", KILLED, str(images), str(out), "writing"], env=os.environ, timeout=120)
    assert ran.returncode == -signal.SIGKILL
    assert contents(out).keys() == before.keys()
    done = run(images, out)
    assert (done.written, done.kept) == (2, 3)


def test_matches_are_resumed_and_of_one_file_of_features(images, tmp_path):
    run(images, tmp_path / "f.h5")
    first, both = [("a.png", "sub/b.png")], [("a.png", "sub/b.png"), ("a.png", "sub/deep/c.png")]
    match_features(tmp_path / "f.h5", first, tmp_path / "m.h5")
    done = match_features(tmp_path / "f.h5", both, tmp_path / "m.h5")
    assert (done.written, done.kept) == (1, 1)
    run(images, tmp_path / "other.h5", max_keypoints=40)
    with pytest.raises(DataError, match="expected features"):
        match_features(tmp_path / "other.h5", both, tmp_path / "m.h5")


def test_what_was_done_is_told(images, tmp_path):
    told = []
    run(images, tmp_path / "f.h5", progress=lambda *event: told.append(event))
    assert told == [(0, 3, "a.png"), (1, 3, "sub/b.png"), (2, 3, "sub/deep/c.png"), (3, 3, "")]
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert json.loads(file.attrs["doap"])["max_keypoints"] == 50


def test_names_that_hloc_cannot_tell_apart_are_refused(tmp_path):
    for name in ("a/b-c.png", "a-b/c.png", "d.png"):
        write_photo(tmp_path / "images" / name, 0, 60, 60)
    run(tmp_path / "images", tmp_path / "f.h5")
    with pytest.raises(DataError, match="expected names that differ when '/' is '-'"):
        match_features(tmp_path / "f.h5", [("a/b-c.png", "d.png"), ("a-b/c.png", "d.png")], tmp_path / "m.h5")


def test_matches_that_do_not_fit_are_told(tmp_path):
    for matches in ([[3, 0]], [[-1, 0]], [[1, 0], [1, 2]]):
        with pytest.raises(ArgumentError, match="expected each keypoint of image 0 once at most, from 0 to 2"):
            write_matches(tmp_path / "m.h5", "a", "b", np.array(matches), np.ones(len(matches)), 3)
    with pytest.raises(DataError, match="expected an HDF5 file of features, got none that opens"):
        match_features(tmp_path / "none.h5", [], tmp_path / "m.h5")


def test_without_h5py_the_extra_is_named(images, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtra, match=r"pip install 'doap\[hloc\]'"):
        run(images, tmp_path / "f.h5")
