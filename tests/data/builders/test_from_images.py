"""Sets from folders of photos: resumed builds have the same bytes for any number of workers."""

import csv
import hashlib
import shutil
import signal

import cv2
import numpy as np
import pytest

from doap._support.errors import ArgumentError, DataError
from doap.data.builders import build_from_images
from doap.data.builders.from_images import _join_models
from doap.data.colmap_model import reconstruct_scene
from doap.data.store import check_set, open_set
from doap.data.writer import UnitGroups
from doap.images.synthetic_views import SyntheticViews
from oracles.forked import run_forked
from oracles.photos import write_photo

VIEWS = SyntheticViews(count=2, keypoints=30)
KILLED_AFTER = """
import os, signal, sys
from pathlib import Path
from doap.data import SyntheticViews, build_from_images

if __name__ == "__main__":
    folder, out, workers, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    reported = []

    def report(done, total, name):
        reported.append(done)
        if len(reported) >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    views = SyntheticViews(count=2, keypoints=30)
    build_from_images(folder, out, views=views, without_tracks=["a", "b"], workers=workers, progress=report)
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed, name in enumerate(("a/1.png", "a/2.png", "b/1.png", "b/2.png", "b/3.png", "lone.png")):
        write_photo(folder / name, seed)
    return folder


def stop_after_a_unit(done, total, name):
    if done:
        raise KeyboardInterrupt


def contents(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def uninterrupted(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "uninterrupted"
    return build_from_images(photos, out, views=VIEWS, without_tracks=["a", "b"])


def test_photos_are_sources_and_those_that_do_not_overlap_are_scenes(photos, uninterrupted):
    patch_set = open_set(uninterrupted)
    assert sorted(patch_set.scene_names) == ["a/1.png", "a/2.png", "b/1.png", "b/2.png", "b/3.png", photos.name]
    assert set(patch_set.source_names) == {"a/1.png", "a/2.png", "b/1.png", "b/2.png", "b/3.png", "lone.png"}
    assert check_set(uninterrupted).from_tracks == 0


def test_a_larger_extent_shows_more_context_of_the_same_points(photos, tmp_path):
    narrow = open_set(build_from_images(photos, tmp_path / "narrow", views=VIEWS, tracks=False))
    wide = open_set(build_from_images(photos, tmp_path / "wide", views=VIEWS, tracks=False, extent=2.0))
    assert sorted(wide.scene_names) == ["a", "b", photos.name]
    assert (narrow.extent, wide.extent) == (1.0, 2.0)
    assert np.array_equal(narrow.count, wide.count)
    shrunk = [cv2.resize(patch, (16, 16), interpolation=cv2.INTER_AREA) for patch in narrow.patches]
    alike = [
        np.corrcoef(one.ravel(), patch[8:24, 8:24].ravel())[0, 1]
        for one, patch in zip(shrunk, wide.patches, strict=True)
    ]
    assert np.median(alike) > 0.95


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_and_resumed_builds_have_the_same_bytes(photos, uninterrupted, tmp_path, workers):
    for last in (1, 2):
        ran = run_forked(KILLED_AFTER, photos, tmp_path / "out", workers, last)
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        assert not (tmp_path / "out").exists()
    build_from_images(photos, tmp_path / "out", views=VIEWS, without_tracks=["a", "b"], workers=workers)
    assert contents(tmp_path / "out") == contents(uninterrupted)


@pytest.mark.parametrize("changes", ["photo", "seed"])
def test_a_build_with_another_photo_or_seed_is_not_resumed(photos, tmp_path, changes):
    copy = shutil.copytree(photos, tmp_path / "photos")
    settings = {"views": VIEWS, "tracks": False}
    with pytest.raises(KeyboardInterrupt):
        build_from_images(copy, tmp_path / "out", progress=stop_after_a_unit, **settings)
    if changes == "photo":
        write_photo(copy / "a" / "1.png", 99)
    else:
        settings["seed"] = 1
    with pytest.raises(DataError):
        build_from_images(copy, tmp_path / "out", **settings)


@pytest.mark.parametrize(("column", "encoding"), [("scene", "utf-8"), ("place", "utf-8-sig")])
def test_ledger_selects_photos_and_is_stored_in_the_set(photos, tmp_path, column, encoding):
    rows = [
        ("a/1.png", "hill", "train", "CC0"),
        ("b/1.png", "lake", "val", "CC-BY-4.0"),
        ("b/2.png", "lake", "val", "CC0"),
    ]
    with (tmp_path / "ledger.csv").open("w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows([("file", column, "split", "licence"), *rows])
    ledger = {"ledger": tmp_path / "ledger.csv", "views": VIEWS}
    out = build_from_images(photos, tmp_path / "val", split="val", without_tracks=["lake"], **ledger)
    patch_set = open_set(out)
    # Photos that do not overlap are scenes of their own.
    assert patch_set.scene_names == ["b/1.png", "b/2.png"]
    assert [row["licence"] for row in patch_set.meta["ledger"]] == ["CC-BY-4.0", "CC0"]
    assert [row["scene"] for row in patch_set.meta["ledger"]] == ["lake", "lake"]
    with pytest.raises(DataError):
        build_from_images(photos, tmp_path / "test", split="test", **ledger)
    with pytest.raises(ArgumentError):
        build_from_images(photos, tmp_path / "train", split="train", without_tracks=["sea"], **ledger)


def test_models_of_one_scene_are_sources_of_their_own():
    def model(groups, ignore):
        count = np.full(groups, 2)
        patches = np.zeros((2 * groups, 8, 8), np.uint8)
        return patches, UnitGroups(count, "hill", "tracks", np.array(ignore))

    patches, groups = _join_models([model(2, [[0, 1]]), model(3, [[0, 2]])], "hill", 8)
    assert len(patches) == 10
    assert groups.source == ["tracks"] * 2 + ["tracks 2"] * 3
    assert groups.ignore.tolist() == [[0, 1], [2, 4]]
    assert _join_models([], "hill", 8)[1].source == []


@pytest.mark.data("strecha")
def test_overlapping_photos_give_tracks(data_folder, tmp_path):
    (tmp_path / "fountain").mkdir()
    for name in ("0003", "0004", "0005"):
        photo = cv2.imread(str(data_folder / "strecha" / "fountain-P11" / f"{name}.jpg"))
        small = cv2.resize(photo, (400, 267), interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(tmp_path / "fountain" / f"{name}.png"), small)
    out = build_from_images(tmp_path, tmp_path / "out", views=SyntheticViews(count=1, keypoints=20))
    assert check_set(out).from_tracks > 100
    assert check_set(out).from_photos > 0


def test_photos_that_colmap_cannot_register_are_listed(photos, tmp_path, caplog):
    build_from_images(photos, tmp_path / "out", views=VIEWS, without_tracks=["a"])
    assert "['b/1.png', 'b/2.png', 'b/3.png']" in caplog.text


LEDGER = "file,scene,split\na/1.png,a,train\nb/1.png,b,train\n"


@pytest.mark.parametrize(
    "content",
    [
        LEDGER.encode() + b"\xff",
        LEDGER.encode("utf-16"),
        LEDGER.encode() + b"a/2.png\n",
        LEDGER.encode() + b"a/2.png,a,train,more\n",
        LEDGER.encode() + b",a,train\n",
        LEDGER.encode() + b"../2.png,a,train\n",
        LEDGER.encode() + b"/2.png,a,train\n",
        b"file,scene\n",
        b"",
        b"file,scene,split\n" + b"x" * 200_000 + b",a,train\n",
    ],
)
def test_a_damaged_ledger_is_refused(photos, tmp_path, content):
    (tmp_path / "ledger.csv").write_bytes(content)
    with pytest.raises(DataError):
        build_from_images(photos, tmp_path / "out", ledger=tmp_path / "ledger.csv")


def test_colmap_decodes_no_photo_with_too_many_pixels(tmp_path):
    pytest.importorskip("pycolmap")
    (tmp_path / "huge.pgm").write_bytes(b"P5 40000 40000 255\n")
    (tmp_path / "work").mkdir()
    with pytest.raises(DataError, match="more pixels"):
        reconstruct_scene(tmp_path, ["huge.pgm"], tmp_path / "work")
    assert not any((tmp_path / "work").iterdir())
