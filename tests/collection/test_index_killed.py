"""A killed change of an index has either taken effect or not, never in part."""

import json
import os
from pathlib import Path

import pytest

from doap.collection.index import Index, add_images, build_index, remove_images
from oracles.feature_sets import random_features, write_features
from oracles.interpreter import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")


def some_features(number):
    return random_features(number, 100, dim=16)


@pytest.fixture(scope="module", params=["flat", "ivf-pq"])
def killed_changes(request, tmp_path_factory):
    """Rows (change, operation, killed, names afterwards) of the killer process, and its working folder."""
    folder = tmp_path_factory.mktemp("killed")
    images = {f"{number}.jpg": some_features(number) for number in range(3)}
    more = {f"{number}.jpg": some_features(number) for number in (3, 4)}
    index = build_index(write_features(folder / "features", images), folder / "index", kind=request.param)
    write_features(folder / "more", more)
    work = folder / "work"
    work.mkdir()
    killer = Path(__file__).with_name("index_killer.py")
    ran = run_python(killer, index, folder / "more", work, OMP_NUM_THREADS="1")
    return json.loads(ran.stdout), work


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("remove", ["0.jpg", "1.jpg", "2.jpg"], ["1.jpg", "2.jpg"]),
        ("add", ["0.jpg", "1.jpg", "2.jpg"], ["0.jpg", "1.jpg", "2.jpg", "3.jpg", "4.jpg"]),
        ("build", None, ["3.jpg", "4.jpg"]),
    ],
)
def test_a_killed_change_leaves_the_old_or_the_new_state(killed_changes, change, before, after):
    states = [(killed, names) for name, _, killed, names in killed_changes[0] if name == change]
    assert len(states) > 8
    assert [killed for killed, _ in states] == [True] * (len(states) - 1) + [False]
    names = [names for _, names in states]
    assert names[-1] == after
    # Once the change has taken effect, it has at all later operations.
    effective = [found == after for found in names]
    assert effective == sorted(effective)
    assert all(found == before for found, done in zip(names, effective, strict=True) if not done)


def test_the_next_change_works_and_deletes_the_files_of_a_killed_one(killed_changes):
    folders = [
        killed_changes[1] / f"{name}-{operation}"
        for name, operation, killed, _ in killed_changes[0]
        if killed and name == "add"
    ]
    for folder in folders:
        remove_images(folder, ["1.jpg"])
        index = Index(folder)
        index.verify()
        assert "1.jpg" not in index.names
        assert {path.name for path in folder.iterdir()} == {
            "meta.json",
            *(file["name"] for file in index.meta["files"].values()),
        }


def test_a_killed_compaction_leaves_the_old_or_the_new_files(killed_changes):
    rows = [(operation, names) for name, operation, _, names in killed_changes[0] if name == "compact"]
    assert len(rows) > 8
    assert all(names == ["1.jpg", "2.jpg"] for _, names in rows)
    dropped = [Index(killed_changes[1] / f"compact-{operation}").info().removed_descriptors for operation, _ in rows]
    assert set(dropped) == {100, 0}
    assert dropped == sorted(dropped, reverse=True)


def test_removed_images_stay_removed_after_later_kills(killed_changes):
    done = [operation for name, operation, _, names in killed_changes[0] if name == "remove" and "0.jpg" not in names]
    for folder in (killed_changes[1] / f"remove-{operation}" for operation in done):
        features = write_features(folder / "again", {"0.jpg": some_features(0)})
        assert add_images(folder, features).excluded == 1
        _, ids = Index(folder).search(some_features(0).descriptors, 40)
        assert not (Index(folder).image_of(ids) == 0).any()
