"""A killed change of an index has either taken effect or not, never in part."""

import json
import os
from pathlib import Path

import pytest

from doap.collection.index import Index, IndexChange, build_index
from oracles.feature_sets import random_features, write_features
from oracles.interpreter import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")


def some_images(*numbers):
    return {f"{number}.jpg": random_features(number, 100, dim=16) for number in numbers}


@pytest.fixture(scope="module", params=["flat", "ivf"])
def killed_changes(request, tmp_path_factory):
    """Rows (change, operation, killed, names afterwards) of the killer process, and its working folder."""
    folder = tmp_path_factory.mktemp("killed")
    index = build_index(write_features(folder / "features", some_images(0, 1, 2)), folder / "index", kind=request.param)
    write_features(folder / "more", some_images(3, 4))
    work = folder / "work"
    work.mkdir()
    ran = run_python(Path(__file__).with_name("index_killer.py"), index, folder / "more", work, OMP_NUM_THREADS="1")
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
    # Once the change has taken effect, it has at all later operations.
    effective = [names == after for _, names in states]
    assert effective == sorted(effective)
    assert effective[-1]
    assert all(names == before for (_, names), done in zip(states, effective, strict=True) if not done)


def test_the_next_change_works_and_deletes_the_files_of_a_killed_one(killed_changes, tmp_path):
    again = write_features(tmp_path / "again", some_images(0, 1, 2, 3, 4))
    for name, operation, _, names in killed_changes[0]:
        if name == "build":
            continue
        folder = killed_changes[1] / f"{name}-{operation}"
        change = Index(folder).add(again)
        excluded = "0.jpg" not in names
        assert change == IndexChange(added=5 - len(names) - excluded, unchanged=len(names), excluded=excluded)
        Index(folder).verify(again)
        assert len(list(folder.iterdir())) == 2
