"""A change of an index that is killed has happened or has not; there is nothing in between."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doap.scale.index import Index, add_images, build_index, remove_images
from oracles.feature_sets import random_features, write_features

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")


def some_features(number):
    return random_features(number, 100, dim=16)


@pytest.fixture(scope="module", params=["flat", "ivf-pq"])
def told(request, tmp_path_factory):
    """Rows (change, moment, killed, names afterwards), of a process that kills its children; and where they worked."""
    folder = tmp_path_factory.mktemp("killed")
    images = {f"{number}.jpg": some_features(number) for number in range(3)}
    more = {f"{number}.jpg": some_features(number) for number in (3, 4)}
    index = build_index(write_features(folder / "features", images), folder / "index", kind=request.param)
    write_features(folder / "more", more)
    room = folder / "room"
    room.mkdir()
    killer = Path(__file__).with_name("index_killer.py")
    ran = subprocess.run(
        [sys.executable, killer, index, folder / "more", room],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), room


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("remove", ["0.jpg", "1.jpg", "2.jpg"], ["1.jpg", "2.jpg"]),
        ("add", ["0.jpg", "1.jpg", "2.jpg"], ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg"]),
        ("build", None, ["3.jpg", "4.jpg"]),
    ],
)
def test_killed_at_any_moment_it_is_as_before_or_as_after(told, change, before, after):
    states = [(killed, names) for name, _, killed, names in told[0] if name == change]
    assert len(states) > 8
    assert [killed for killed, _ in states] == [True] * (len(states) - 1) + [False]
    names = [names for _, names in states]
    assert names[-1] == after
    # Once it has happened at one moment it has happened at all later ones.
    happened = [found == after for found in names]
    assert happened == sorted(happened)
    assert all(found == before for found, done in zip(names, happened, strict=True) if not done)


def test_the_next_change_works_after_any_kill_and_leaves_nothing_lying_about(told):
    folders = [told[1] / f"{name}-{moment}" for name, moment, killed, _ in told[0] if killed and name == "add"]
    for folder in folders:
        remove_images(folder, ["1.jpg"])
        index = Index(folder)
        index.verify()
        assert "1.jpg" not in index.names
        unnamed = {path.name for path in folder.iterdir()} - {"meta.json", *index.meta["files"]}
        # What the change before named is left for those who have opened the index before this one.
        assert all(name.startswith("images-") for name in unnamed)


def test_what_was_removed_stays_removed_through_later_kills(told):
    done = [moment for name, moment, _, names in told[0] if name == "remove" and "0.jpg" not in names]
    for folder in (told[1] / f"remove-{moment}" for moment in done):
        features = write_features(folder / "again", {"0.jpg": some_features(0)})
        assert add_images(folder, features).kept_out == 1
        _, ids = Index(folder).search(some_features(0).descriptors, 40)
        assert not (Index(folder).image_of(ids) == 0).any()
