"""Databases for COLMAP, written again: after a kill, after changes, over bad photos and over what others wrote."""

import os
import shutil
import signal
import subprocess
import sys

import cv2
import numpy as np
import pycolmap
import pytest

from doap.baselines import rootsift
from doap.detectors import sift
from doap.errors import DataError
from doap.images import read_grey
from oracles.colmap_database import MOST, content, ids, write
from oracles.plane_scene import pose, render


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    pass


@pytest.mark.parametrize("step", [2, 4, 7])
def test_stopped_and_resumed_is_never_stopped(photos, tmp_path, database, step):
    """Among the images (2), before the first pair (4), among the pairs (7)."""

    def stop(done, total, name):
        if done == step:
            raise Stopped

    out = tmp_path / "database.db"
    with pytest.raises(Stopped):
        write(photos, out, progress=stop)
    assert not out.exists()
    looked = []
    resumed = write(photos, out, detector=Watched(looked))
    assert resumed.unchanged is False
    # One look is at the fixed picture that tells detectors apart.
    assert len(looked) - 1 == max(0, 4 - step)
    assert content(out) == content(database.database)
    assert not (tmp_path / "database.db.unfinished").exists()


class Watched:
    """The usual detector, and a list of what it was shown."""

    name, magnification = "sift", 6.0

    def __init__(self, looked):
        self.looked = looked

    def detect(self, image, max_keypoints=None):
        self.looked.append(image.shape)
        return sift().detect(image, max_keypoints)


def test_killed_among_the_pairs_and_resumed_is_never_killed(photos, tmp_path, database):
    out = tmp_path / "database.db"
    script = f"""
import os, signal
from doap.export.colmap import write_database
from doap.baselines import rootsift
def kill(done, total, name):
    if done == 7:
        os.kill(os.getpid(), signal.SIGKILL)
write_database({str(photos)!r}, {str(out)!r}, rootsift(), max_keypoints={MOST}, progress=kill)
"""
    ran = subprocess.run([sys.executable, "-c", script], env=os.environ, timeout=120)
    assert ran.returncode == -signal.SIGKILL
    assert not out.exists()
    write(photos, out)
    assert content(out) == content(database.database)


def test_finished_database_is_left_alone(photos, tmp_path, database):
    shutil.copytree(database.database.parent, tmp_path / "copy")
    out = tmp_path / "copy" / "database.db"
    with pycolmap.Database.open(out) as opened:
        # What a user adds is not lost.
        opened.write_matches(1, 1, np.array([[0, 0]]))
    before = content(out)
    again = write(photos, out)
    assert again.unchanged
    assert (again.images, again.verified_matches) == (4, database.verified_matches)
    assert content(out) == before


@pytest.fixture
def grown(photos, database, tmp_path):
    """The database, and its photos with one more, whose name comes first, so that all others get other ids."""
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copytree(database.database.parent, tmp_path / "copy")
    cv2.imwrite(str(tmp_path / "photos" / "+.png"), render(pose(45, 8, 10)))
    return tmp_path / "photos", tmp_path / "copy" / "database.db"


def test_new_photo_gives_what_a_new_database_would(grown, tmp_path):
    folder, out = grown
    looked = []
    written = write(folder, out, detector=Watched(looked))
    assert (written.images, written.pairs, len(looked) - 1) == (5, 10, 1)
    assert content(out) == content(write(folder, tmp_path / "fresh.db").database)


def test_pairs_matched_before_are_not_matched_again(grown):
    folder, out = grown
    with pycolmap.Database.open(out) as opened:
        old = ids(opened)["0.png"], ids(opened)["3.png"]
        few = opened.read_matches(*old)[:3]
        opened.delete_matches(*old)
        opened.write_matches(*old, few)
    write(folder, out)
    with pycolmap.Database.open(out) as opened:
        new = ids(opened)["0.png"], ids(opened)["3.png"]
        assert new != old
        np.testing.assert_array_equal(opened.read_matches(*new), few)


def test_other_settings_start_anew(photos, tmp_path, database):
    shutil.copytree(database.database.parent, tmp_path / "copy")
    out = tmp_path / "copy" / "database.db"
    for changed in (
        {"max_keypoints": 50},
        {"descriptor": rootsift(16)},
        {"detector": sift(contrast=0.02)},
        {"camera_mode": "single"},
    ):
        written = write(photos, out, **changed)
        assert not written.unchanged
        assert (
            content(out)["keypoints"] == content(write(photos, tmp_path / "fresh.db", **changed).database)["keypoints"]
        )
    with pycolmap.Database.open(out) as opened:
        assert opened.num_cameras() == 1


def test_damaged_feature_files_are_made_again(photos, tmp_path, database):
    shutil.copytree(database.database.parent, tmp_path / "copy")
    out, random = tmp_path / "copy" / "database.db", np.random.default_rng(0)
    out.unlink()
    files = sorted((tmp_path / "copy" / "database.db.features").iterdir())
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-200])
    flipped = bytearray(files[2].read_bytes())
    flipped[len(flipped) // 2] ^= 0xFF
    files[2].write_bytes(flipped)
    files[3].write_bytes(random.bytes(5000))
    write(photos, out)
    assert content(out) == content(database.database)


def test_bad_photos_are_left_out_and_told(photos, tmp_path):
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
    reasons = {"empty.jpg": "empty", "text.png": "damaged", "cut.png": "truncated", "foreign.webp": "COLMAP"}
    assert written.skipped.keys() == reasons.keys()
    for name, word in reasons.items():
        assert word in written.skipped[name]
    # A photo without keypoints is a photo.
    assert (written.images, written.pairs) == (6, 15)
    assert write(folder, out).skipped == written.skipped


def test_only_bad_photos_are_an_error(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "empty.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="none can be read"):
        write(tmp_path / "photos", tmp_path / "database.db")
    assert not (tmp_path / "database.db").exists()


@pytest.mark.parametrize("made_by", ["colmap", "nobody"])
def test_database_of_others_is_never_overwritten(photos, tmp_path, made_by):
    out = tmp_path / "database.db"
    if made_by == "colmap":
        pycolmap.Database.open(out).close()
    else:
        out.write_text("my notes")
    before = out.read_bytes()
    with pytest.raises(DataError, match="another one"):
        write(photos, out)
    assert out.read_bytes() == before


def test_database_open_elsewhere_is_not_replaced(photos, tmp_path, database):
    shutil.copytree(database.database.parent, tmp_path / "copy")
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
        with pytest.raises(DataError, match="no program has open"):
            write(photos, out, max_keypoints=50)
        other.communicate(b"\n")
    assert not write(photos, out, max_keypoints=50).unchanged
