"""hloc files: readable by hloc, resumable after a kill, and consistent with the images."""

import json
import shutil
import signal
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from doap import pipeline
from doap._support import processes
from doap._support.errors import ArgumentError, DataError, MissingExtra
from doap.baselines import rootsift, teblid
from doap.collection import FeatureSet
from doap.export import hdf5
from doap.export.hloc import feature_arrays, match_arrays, pair_group, write_hloc
from doap.types import Features
from oracles.forked import run_forked
from oracles.photos import write_photo

h5py = pytest.importorskip("h5py")


@pytest.fixture
def images(tmp_path):
    for name, seed in {"a.png": 0, "sub/b.png": 1, "sub/deep/c.png": 0}.items():
        write_photo(tmp_path / "images" / name, seed, 120, 160)
    return tmp_path / "images"


PAIRS = [("a.png", "sub/b.png"), ("a.png", "sub/deep/c.png")]


def run(images, out, describer=rootsift, **changes):
    return write_hloc(images, out, describer(), **{"max_keypoints": 50, **changes})


def match(images, folder, pairs=PAIRS, **changes):
    """Write folder/f.h5 and folder/m.h5."""
    return run(images, folder / "f.h5", pairs=pairs, matches=folder / "m.h5", **changes)


def write_to(path, name, arrays):
    hdf5.add_groups(path, [hdf5.Group(name, arrays, ["checksum"])], {})


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


def assert_same(path0, path1):
    contents0, contents1 = contents(path0), contents(path1)
    assert contents0.keys() == contents1.keys()
    assert all(np.array_equal(contents0[name], contents1[name]) for name in contents0)


def test_features_have_the_layout_of_hloc(images, tmp_path):
    summary = run(images, tmp_path / "f.h5")
    assert (summary.images, summary.extracted, summary.reused, summary.skipped) == (3, 3, 0, {})
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


def test_by_default_an_image_has_up_to_2048_keypoints(tmp_path):
    write_photo(tmp_path / "images" / "large.png", 0, 480, 640)
    write_hloc(tmp_path / "images", tmp_path / "f.h5", teblid())
    assert contents(tmp_path / "f.h5")["large.png/keypoints"].shape == (2048, 2)


def test_keypoints_are_in_the_pixels_as_stored(images, tmp_path):
    """EXIF orientation is ignored, as in hloc and COLMAP."""
    from PIL import Image

    picture = Image.open(images / "a.png")
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(images / "rotated.jpg", exif=exif, quality=95)
    run(images, tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert file["rotated.jpg"]["image_size"][()].tolist() == [160, 120]


def test_an_image_without_keypoints_has_empty_arrays(images, tmp_path):
    cv2.imwrite(str(images / "black.png"), np.zeros((50, 60), np.uint8))
    run(images, tmp_path / "f.h5")
    with h5py.File(tmp_path / "f.h5", "r") as file:
        assert file["black.png"]["keypoints"].shape == (0, 2)
        assert file["black.png"]["descriptors"].shape == (128, 0)


def test_matches_equal_doap_match_with_the_scores_of_hloc(images, tmp_path):
    summary = match(images, tmp_path)
    assert (summary.matches, summary.pairs, summary.matched) == (tmp_path / "m.h5", 2, 2)
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


def test_only_new_images_are_extracted(images, tmp_path):
    run(images, tmp_path / "f.h5")
    before = (tmp_path / "f.h5").read_bytes()
    summary = run(images, tmp_path / "f.h5")
    assert (summary.extracted, summary.reused) == (0, 3)
    assert (tmp_path / "f.h5").read_bytes() == before
    write_photo(images / "d.png", 5, 120, 160)
    summary = run(images, tmp_path / "f.h5")
    assert (summary.images, summary.extracted, summary.reused) == (4, 1, 3)
    run(images, tmp_path / "fresh.h5")
    assert_same(tmp_path / "f.h5", tmp_path / "fresh.h5")


def test_changed_and_removed_images_update_features_and_matches(images, tmp_path):
    pairs = [*PAIRS, ("sub/b.png", "sub/deep/c.png")]
    match(images, tmp_path, pairs)
    write_photo(images / "sub" / "b.png", 7, 120, 160)
    summary = match(images, tmp_path, pairs)
    assert (summary.extracted, summary.reused, summary.pairs, summary.matched) == (1, 2, 3, 2)
    (tmp_path / "fresh").mkdir()
    match(images, tmp_path / "fresh", pairs)
    for name in ("f.h5", "m.h5"):
        assert_same(tmp_path / name, tmp_path / "fresh" / name)

    (images / "sub" / "deep" / "c.png").unlink()
    summary = match(images, tmp_path, PAIRS[:1])
    assert (summary.images, summary.extracted, summary.pairs, summary.matched) == (2, 0, 1, 0)
    assert hloc_names(tmp_path / "f.h5") == {"a.png", "sub/b.png"}
    assert hloc_names(tmp_path / "m.h5") == {"a.png/sub-b.png"}


def test_damaged_features_are_extracted_again(images, tmp_path, monkeypatch):
    monkeypatch.setattr("doap.collection.features._PART_BYTES", 1)
    run(images, tmp_path / "f.h5")
    run(images, tmp_path / "fresh.h5")
    (tmp_path / "f.h5").unlink()
    part = sorted((tmp_path / "f.h5.features").glob("part-*"))[1]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 0xFF
    part.write_bytes(content)
    summary = run(images, tmp_path / "f.h5")
    assert (summary.extracted, summary.reused) == (1, 2)
    assert_same(tmp_path / "f.h5", tmp_path / "fresh.h5")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_keypoints": 60}, "max_keypoints is 60 instead of 50"),
        ({"describer": partial(rootsift, 16)}, "the descriptor has other weights"),
        ({"detector": "orb"}, "detector is 'orb' instead of 'sift'"),
        ({"ratio": 0.8}, "m.h5: .* ratio is 0.8 instead of None"),
    ],
)
def test_other_settings_need_another_file(images, tmp_path, change, words):
    match(images, tmp_path)
    before = [(tmp_path / name).read_bytes() for name in ("f.h5", "m.h5")]
    with pytest.raises(DataError, match=words):
        match(images, tmp_path, **change)
    assert [(tmp_path / name).read_bytes() for name in ("f.h5", "m.h5")] == before
    # The features are still those of the files.
    assert match(images, tmp_path).extracted == 0


def test_the_settings_hold_the_fingerprint_of_the_extraction(images, tmp_path):
    match(images, tmp_path)
    extractor = FeatureSet(tmp_path / "f.h5.features").extractor
    assert extractor.stored == "float32"
    for name in ("f.h5", "m.h5"):
        with h5py.File(tmp_path / name, "r") as file:
            assert json.loads(file.attrs["doap"])["extractor"] == asdict(extractor)


def test_a_foreign_file_is_not_overwritten(images, tmp_path):
    (tmp_path / "f.h5").write_text("a letter")
    with pytest.raises(DataError, match="exists and is not an HDF5 file, or a damaged one"):
        run(images, tmp_path / "f.h5")
    assert (tmp_path / "f.h5").read_text() == "a letter"
    h5py.File(tmp_path / "g.h5", "w").close()
    before = (tmp_path / "g.h5").read_bytes()
    with pytest.raises(DataError, match="it was not written by doap"):
        run(images, tmp_path / "g.h5")
    assert (tmp_path / "g.h5").read_bytes() == before
    match(images, tmp_path / "files")
    with pytest.raises(DataError, match="content is 'features' instead of 'matches'"):
        run(images, tmp_path / "files" / "m.h5")


def test_an_unreadable_image_is_skipped_with_a_reason(images, tmp_path):
    (images / "cut.png").write_bytes((images / "a.png").read_bytes()[:2000])
    (images / "empty.jpg").touch()
    summary = match(images, tmp_path, [("a.png", "cut.png"), ("a.png", "sub/b.png")])
    assert (summary.extracted, set(summary.skipped)) == (3, {"cut.png", "empty.jpg"})
    assert "truncated" in summary.skipped["cut.png"]
    assert "empty" in summary.skipped["empty.jpg"]
    assert hloc_names(tmp_path / "f.h5") == {"a.png", "sub/b.png", "sub/deep/c.png"}
    assert hloc_names(tmp_path / "m.h5") == {"a.png/sub-b.png"}
    # Once repaired, it is added.
    write_photo(images / "cut.png", 3, 120, 160)
    assert run(images, tmp_path / "f.h5").extracted == 1


def test_a_folder_without_readable_images_is_an_error(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "empty.jpg").touch()
    with pytest.raises(DataError, match=r"none of 1 image can be read\. The first one: .*empty\.jpg"):
        run(tmp_path / "images", tmp_path / "f.h5")
    assert not (tmp_path / "f.h5").exists()


KILLED = """
import functools, os, signal, sys
import doap.export.hdf5
import doap.collection.features
import oracles.deadly_hdf5
from doap.baselines import rootsift
from doap.export.hloc import write_hloc

# Write a part per image.
doap.collection.features._PART_BYTES = 1
images, out, matches, moment = sys.argv[1:]
if moment in ("features", "matches"):
    doap.export.hdf5.add = functools.partial(oracles.deadly_hdf5.add, moment[0] + ".h5")

def kill_between(done, total, name):
    if moment == "extraction" and done == 2 or moment == "matching" and done == 4:
        os.kill(os.getpid(), signal.SIGKILL)

pairs = [("a.png", "sub/b.png"), ("a.png", "sub/deep/c.png")]
write_hloc(images, out, rootsift(), max_keypoints=50, pairs=pairs, matches=matches, progress=kill_between)
"""


def run_killed(images, folder, moment):
    ran = run_forked(KILLED, images, folder / "f.h5", folder / "m.h5", moment)
    assert ran.returncode == -signal.SIGKILL, ran.stderr


@pytest.mark.parametrize(
    ("moment", "reused", "matched"), [("extraction", 2, 2), ("features", 3, 2), ("matching", 3, 1), ("matches", 3, 2)]
)
def test_a_killed_run_resumes(images, tmp_path, moment, reused, matched):
    """Killed between two images, in the features file, between two pairs and in the matches file.

    Only a kill while a group is being written to the matches file loses its other groups: HDF5 cannot read it any more.
    """
    run_killed(images, tmp_path, moment)
    assert (tmp_path / "f.h5").exists() == moment.startswith("match")
    assert not (tmp_path / "m.h5").exists()
    summary = match(images, tmp_path)
    assert (summary.extracted, summary.reused, summary.matched) == (3 - reused, reused, matched)
    assert not list(tmp_path.glob("*.unfinished"))
    match(images, tmp_path / "fresh")
    for name in ("f.h5", "m.h5"):
        assert_same(tmp_path / name, tmp_path / "fresh" / name)


def test_existing_files_survive_a_kill_while_images_are_added(images, tmp_path):
    match(images, tmp_path, PAIRS[:1])
    before = [contents(tmp_path / name).keys() for name in ("f.h5", "m.h5")]
    for seed in (5, 6):
        write_photo(images / f"new{seed}.png", seed, 120, 160)
    run_killed(images, tmp_path, "features")
    assert [contents(tmp_path / name).keys() for name in ("f.h5", "m.h5")] == before
    summary = match(images, tmp_path)
    assert (summary.extracted, summary.reused, summary.pairs, summary.matched) == (0, 5, 2, 1)


def test_unfinished_matches_of_changed_images_are_not_resumed(images, tmp_path):
    run_killed(images, tmp_path, "matching")
    write_photo(images / "sub" / "b.png", 7, 120, 160)
    assert match(images, tmp_path).matched == 2
    match(images, tmp_path / "fresh")
    assert_same(tmp_path / "m.h5", tmp_path / "fresh" / "m.h5")


def test_new_pairs_are_added_to_existing_matches(images, tmp_path):
    match(images, tmp_path, PAIRS[:1])
    summary = match(images, tmp_path)
    assert (summary.pairs, summary.matched) == (2, 1)
    before = (tmp_path / "m.h5").read_bytes()
    summary = match(images, tmp_path, PAIRS[1:])
    assert (summary.pairs, summary.matched) == (2, 0)
    assert (tmp_path / "m.h5").read_bytes() == before


def test_progress_counts_images_and_pairs(images, tmp_path):
    events = []
    match(images, tmp_path, progress=lambda *event: events.append(event))
    assert [event[:2] for event in events] == [(done, 5) for done in (0, 0, 1, 2, 3, 3, 4, 5)]
    assert [event[2] for event in events[5:]] == ["a.png sub/b.png", "a.png sub/deep/c.png", "finished"]


def test_names_that_hloc_cannot_distinguish_are_refused(tmp_path):
    for name in ("a/b-c.png", "a-b/c.png", "d.png"):
        write_photo(tmp_path / "images" / name, 0, 60, 60)
    with pytest.raises(DataError, match="hloc replaces / by - and cannot distinguish these names"):
        match(tmp_path / "images", tmp_path, [("a/b-c.png", "d.png"), ("a-b/c.png", "d.png")])
    assert not (tmp_path / "f.h5").exists()


def test_pairs_need_a_matches_file(images, tmp_path):
    with pytest.raises(ArgumentError, match="pairs and matches: expected both or neither"):
        run(images, tmp_path / "f.h5", pairs="exhaustive")
    assert not (tmp_path / "f.h5").exists()


def test_without_h5py_the_error_names_the_extra(images, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtra, match=r"pip install 'doap\[hloc\]'"):
        run(images, tmp_path / "f.h5")


@pytest.mark.gpu
def test_a_gpu_finds_the_matches_of_the_cpu(images, tmp_path, cuda):
    match(images, tmp_path / "cpu", device="cpu")
    match(images, tmp_path / "gpu", device=cuda)
    for pair in PAIRS:
        expected, found = (hloc_matches(tmp_path / name / "m.h5", *pair) for name in ("cpu", "gpu"))
        assert np.array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], atol=1e-5)


def test_a_file_that_makes_hdf5_hang_is_refused(images, tmp_path, monkeypatch):
    """h5py never returns from this file, which the fuzzer found."""
    monkeypatch.setattr(processes, "_SECONDS", 1)
    shutil.copy(Path(__file__).parents[1] / "regressions" / "hloc-hang.h5", tmp_path / "m.h5")
    with pytest.raises(DataError, match=r"m\.h5: damaged \(reading takes more than 2 s\). Remove it"):
        match(images, tmp_path)


def test_a_damaged_unfinished_file_is_written_again(images, tmp_path):
    match(images, tmp_path)
    expected = contents(tmp_path / "m.h5")
    (tmp_path / "m.h5").rename(tmp_path / "m.h5.unfinished")
    damaged = bytearray((tmp_path / "m.h5.unfinished").read_bytes())
    damaged[60:90] = bytes(30)
    (tmp_path / "m.h5.unfinished").write_bytes(damaged)
    assert match(images, tmp_path).matched == 2
    assert contents(tmp_path / "m.h5").keys() == expected.keys()
