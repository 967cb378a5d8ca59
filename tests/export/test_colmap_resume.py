"""COLMAP databases written again: after a kill, after changes, with unreadable photos and over foreign files."""

import os
import shutil
import signal
import subprocess
import sys

import cv2
import numpy as np
import pycolmap
import pytest

from doap._support.errors import DataError
from doap.baselines import teblid
from doap.detectors import sift
from doap.images import read_grey
from doap.pipeline import match
from oracles.colmap_database import MAX_KEYPOINTS, content, ids, write
from oracles.forked import run_forked
from oracles.plane_scene import pose, render


def test_a_run_killed_among_the_pairs_resumes_to_the_same_database(photos, tmp_path, database):
    out = tmp_path / "database.db"
    script = f"""
import os, signal
from doap.export.colmap import write_colmap
from doap.baselines import rootsift
def kill(done, total, name):
    if done == 7:
        os.kill(os.getpid(), signal.SIGKILL)
write_colmap({str(photos)!r}, {str(out)!r}, rootsift(), max_keypoints={MAX_KEYPOINTS}, progress=kill)
"""
    ran = run_forked(script)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert not out.exists()
    write(photos, out)
    assert content(out) == content(database.out)
    assert not (tmp_path / "database.db.unfinished").exists()


def test_an_up_to_date_database_is_not_modified(photos, tmp_path, database):
    shutil.copytree(database.out.parent, tmp_path / "copy")
    out = tmp_path / "copy" / "database.db"
    with pycolmap.Database.open(out) as opened:
        # Data that a user adds is not lost.
        opened.write_matches(1, 1, np.array([[0, 0]]))
    before = content(out)
    again = write(photos, out)
    assert again.unchanged
    assert (again.images, again.verified_matches) == (4, database.verified_matches)
    assert content(out) == before


@pytest.fixture
def grown(photos, database, tmp_path):
    """The database, and its photos with a new one whose name comes first, so that the ids of all others change."""
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copytree(database.out.parent, tmp_path / "copy")
    cv2.imwrite(str(tmp_path / "photos" / "+.png"), render(pose(45, 8, 10)))
    return tmp_path / "photos", tmp_path / "copy" / "database.db"


def test_adding_a_photo_matches_new_pairs_only_and_gives_the_database_of_starting_over(grown, tmp_path, monkeypatch):
    folder, out = grown
    matched = []

    def record(*features, **options):
        matched.append(features)
        return match(*features, **options)

    with monkeypatch.context() as patched:
        patched.setattr("doap.export.colmap.match", record)
        written = write(folder, out)
    assert (written.images, written.pairs, len(matched)) == (5, 10, 4)
    assert content(out) == content(write(folder, tmp_path / "fresh.db").out)


def add_matches(out):
    with pycolmap.Database.open(out) as opened:
        opened.delete_matches(ids(opened)["0.png"], ids(opened)["3.png"])
        opened.write_matches(ids(opened)["0.png"], ids(opened)["3.png"], np.array([[0, 0]]))


def calibrate(out):
    with pycolmap.Database.open(out) as opened:
        camera = opened.read_all_cameras()[0]
        camera.params = [2 * camera.params[0], *camera.params[1:]]
        opened.update_camera(camera)


@pytest.mark.parametrize("change", [add_matches, calibrate])
def test_a_database_that_was_changed_since_is_not_rewritten(grown, change):
    folder, out = grown
    change(out)
    before = content(out)
    with pytest.raises(DataError):
        write(folder, out)
    assert content(out) == before


def test_other_settings_rewrite_the_database(photos, tmp_path, database):
    shutil.copytree(database.out.parent, tmp_path / "copy")
    out = tmp_path / "copy" / "database.db"
    for changed in (
        {"max_keypoints": 50},
        {"descriptor": teblid()},
        {"detector": sift(contrast=0.02)},
        {"camera_mode": "single"},
        {"ratio": 0.7},
    ):
        written = write(photos, out, **changed)
        assert not written.unchanged
        expected = content(write(photos, tmp_path / "fresh.db", **changed).out)
        assert all(content(out)[table] == expected[table] for table in ("cameras", "keypoints", "matches"))


def test_damaged_features_are_extracted_again(photos, tmp_path, database, monkeypatch):
    monkeypatch.setattr("doap.collection.features._PART_BYTES", 1)
    out, random = tmp_path / "database.db", np.random.default_rng(0)
    write(photos, out)
    out.unlink()
    parts = sorted((tmp_path / "database.db.features").glob("part-*"))
    assert len(parts) == 4
    parts[0].write_bytes(b"")
    parts[1].write_bytes(parts[1].read_bytes()[:-200])
    flipped = bytearray(parts[2].read_bytes())
    flipped[len(flipped) // 2] ^= 0xFF
    parts[2].write_bytes(flipped)
    parts[3].write_bytes(random.bytes(5000))
    (tmp_path / "database.db.features" / "_meta.json").write_text("{")
    write(photos, out)
    assert content(out) == content(database.out)


def test_changed_and_removed_photos_update_keypoints_and_matches(photos, tmp_path, database):
    folder, out = tmp_path / "photos", tmp_path / "copy" / "database.db"
    shutil.copytree(photos, folder)
    shutil.copytree(database.out.parent, tmp_path / "copy")
    shutil.copyfile(folder / "3.png", folder / "1.png")
    (folder / "2.png").unlink()
    written = write(folder, out)
    assert (written.images, written.pairs) == (3, 3)
    assert content(out) == content(write(folder, tmp_path / "fresh.db").out)


def test_cameras_and_keypoints_are_of_the_same_version_of_a_photo(photos, tmp_path):
    folder, out = tmp_path / "photos", tmp_path / "database.db"
    shutil.copytree(photos, folder)

    def replace_photo(done, _, name):
        if done == 4 and name.endswith("images/s"):
            cv2.imwrite(str(folder / "3.png"), read_grey(folder / "3.png")[:-20])

    with pytest.raises(DataError):
        write(folder, out, progress=replace_photo)
    assert content(write(folder, out).out) == content(write(folder, tmp_path / "fresh.db").out)


def test_worker_processes_write_the_same_database(photos, tmp_path, database):
    written = write(photos, tmp_path / "database.db", descriptor="rootsift", workers=2)
    assert content(written.out) == content(database.out)


def test_unreadable_photos_are_skipped_with_a_reason(photos, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "text.png").write_text("not a photo")
    (folder / "cut.png").write_bytes((folder / "0.png").read_bytes()[:3000])
    cv2.imwrite(str(folder / "foreign.webp"), read_grey(folder / "0.png"))
    cv2.imwrite(str(folder / "flat.png"), np.full((50, 60), 128, np.uint8))
    cv2.imwrite(str(folder / "speck.png"), np.full((1, 1), 128, np.uint8))
    out = tmp_path / "database.db"
    written = write(folder, out)
    reasons = {"empty.jpg": "empty", "text.png": "text.png", "cut.png": "truncated", "foreign.webp": "COLMAP"}
    assert written.skipped.keys() == reasons.keys()
    for name, word in reasons.items():
        assert word in written.skipped[name]
    # Photos without keypoints are kept, and their nine pairs are not verified.
    assert (written.images, written.pairs) == (6, 15)
    assert written.verified_pairs <= 6
    assert write(folder, out).skipped == written.skipped


@pytest.mark.parametrize("program", ["colmap", "text editor"])
def test_a_foreign_file_is_never_overwritten(photos, tmp_path, program):
    out = tmp_path / "database.db"
    if program == "colmap":
        pycolmap.Database.open(out).close()
    else:
        out.write_text("my notes")
    before = out.read_bytes()
    with pytest.raises(DataError):
        write(photos, out)
    assert out.read_bytes() == before


def test_a_database_that_is_open_in_another_program_is_not_replaced(photos, tmp_path, database):
    shutil.copytree(database.out.parent, tmp_path / "copy")
    out = tmp_path / "copy" / "database.db"
    script = f"""
import sqlite3
opened = sqlite3.connect({str(out)!r})
opened.execute("SELECT * FROM images").fetchall()
print("open", flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(DataError):
            write(photos, out, max_keypoints=50)
        other.communicate(b"\n")
    assert not write(photos, out, max_keypoints=50).unchanged


def test_verify_finds_a_replaced_photo_of_the_same_size_and_time(photos, tmp_path):
    folder, out = tmp_path / "photos", tmp_path / "database.db"
    folder.mkdir()
    for name in ("0.png", "3.png"):
        cv2.imwrite(str(folder / name.replace("png", "bmp")), read_grey(photos / name))
    before, replaced = write(folder, out), folder / "0.bmp"
    times = replaced.stat()
    shutil.copyfile(folder / "3.bmp", replaced)
    os.utime(replaced, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert write(folder, out).unchanged
    after = write(folder, out, verify=True)
    assert (after.unchanged, after.keypoints == before.keypoints) == (False, False)
    assert content(out) == content(write(folder, tmp_path / "fresh.db").out)
