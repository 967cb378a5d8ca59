"""The `doap calibrate` command."""

import json

import pytest

from oracles.forked import run_forked
from oracles.photos import write_photo


def doap(*arguments):
    return run_forked("from doap.cli import main; main()", *arguments)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(3):
        write_photo(folder / f"{seed}.png", seed, height=160, width=200)
    return folder


def test_scores_and_best_are_printed(photos):
    tried = ("--magnification", 0.5, "--magnification", 6, "--magnification", 40)
    ran = doap("calibrate", photos, "--descriptor", "rootsift", "--detector", "sift", *tried, "--views", 1)
    assert ran.returncode == 0, ran.stderr
    best = [line for line in ran.stdout.splitlines() if line.endswith("best")]
    assert len(best) == 1
    assert best[0].split()[0] == "6.00"
    assert "preset of sift: 6" in ran.stdout


def test_json_has_stable_keys(photos):
    ran = doap("calibrate", photos / "0.png", photos / "1.png", "--detector", "akaze", "--views", 1, "--json")
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert set(values) == {
        "descriptor",
        "detector",
        "preset",
        "best",
        "open_ended",
        "trials",
        "pairs",
        "skipped",
    }
    assert (values["descriptor"], values["detector"]) == ("doap-128", "akaze")
    assert values["pairs"] + values["skipped"] == 2
    assert values["best"] in [trial["magnification"] for trial in values["trials"]]
    assert values["preset"] in [trial["magnification"] for trial in values["trials"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--detector", "surf"], ["detector", "expected one of sift", "'surf'"]),
        (["--descriptor", "nothing.safetensors"], ["nothing.safetensors", "rootsift"]),
        (["--magnification", "0"], ["magnifications", "above 0"]),
    ],
)
def test_error_is_one_line(photos, arguments, words):
    ran = doap("calibrate", photos, *arguments)
    lines = [line for line in ran.stderr.splitlines() if line.startswith("doap: ")]
    assert (ran.returncode, ran.stdout, len(lines)) == (1, "", 1)
    assert "Traceback" not in ran.stderr
    for word in words:
        assert word in lines[0]


def test_folder_without_photos_is_one_line(tmp_path):
    ran = doap("calibrate", tmp_path)
    assert ran.returncode == 1
    assert "expected images" in ran.stderr.splitlines()[-1]


def test_only_some_photos_are_used(photos):
    ran = doap("calibrate", photos, "--max-photos", 1, "--views", 1, "--magnification", 6, "--json")
    assert json.loads(ran.stdout)["pairs"] == 1
