"""The `doap pairs` command."""

import inspect
import json

import pytest

from doap.baselines import rootsift
from oracles.feature_sets import write_photo_features, write_views


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    names = write_views(folder / "photos", scenes=2, views=3)
    return write_photo_features(folder / "features", folder / "photos", names, "rootsift", rootsift()).folder


def test_pairs_of_scenes_are_written_and_counted(doap, features, tmp_path):
    out = tmp_path / "pairs.txt"
    ran = doap("pairs", features, "--top", 2, "--out", out, "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"out": str(out), "images": 6, "pairs": 6, "share": 0.4}
    expected = [f"{s}/{a}.png {s}/{b}.png" for s in (0, 1) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert out.read_text().splitlines() == expected


def test_text_output_names_the_next_step_and_an_index_can_be_used(doap, features, tmp_path):
    assert doap("index", "build", features, "--out", tmp_path / "index", "--json").returncode == 0
    out = tmp_path / "pairs.txt"
    ran = doap("pairs", features, "--top", 2, "--out", out, "--index", tmp_path / "index")
    counts, advice = ran.stdout.splitlines()
    assert counts == f"{out}: 6 pairs of 6 images, 40.0% of all pairs"
    assert advice.endswith(f"--pairs {out}")


def test_errors_are_one_line(doap, tmp_path):
    ran = doap("pairs", tmp_path / "no", "--out", tmp_path / "pairs.txt", "--json")
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert "not a feature set" in line


def test_commands_have_the_defaults_of_the_functions():
    from doap.cli.index import build, search
    from doap.cli.pairs import pairs
    from doap.collection import build_index, search_images, select_pairs

    for command, function in ((build, build_index), (search, search_images), (pairs, select_pairs)):
        options, arguments = (inspect.signature(callable_).parameters for callable_ in (command, function))
        for name in (options.keys() & arguments.keys()) - {"features"}:
            assert options[name].default == arguments[name].default, name
