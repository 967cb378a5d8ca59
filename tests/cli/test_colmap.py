"""The `doap colmap` command: output, and one clear line per error."""

import inspect
import json

import cv2
import pycolmap
import pytest
from typer.testing import CliRunner

from doap._support.errors import DoapError
from doap.cli import app
from doap.cli.colmap import colmap
from doap.export.colmap import write_colmap
from oracles.plane_scene import VIEWS, pose, render


def doap(*arguments):
    return CliRunner().invoke(app, ["colmap", *map(str, arguments)])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number, view in enumerate(VIEWS[:3]):
        cv2.imwrite(str(folder / f"{number}.png"), render(pose(*view)))
    (folder / "bad.jpg").write_bytes(b"")
    return folder


def test_database_is_written_once_and_reported(photos, tmp_path):
    out = tmp_path / "new folder" / "database.db"
    arguments = (photos, "--out", out, "--max-keypoints", 100, "--camera-mode", "per-image", "--ratio", 0.95)
    ran = doap(*arguments, "--json")
    assert ran.exit_code == 0, ran.exception
    values = json.loads(ran.stdout)
    assert (values["out"], values["images"], values["pairs"], values["unchanged"]) == (str(out), 3, 3, False)
    assert values["keypoints"] > values["matches"] >= values["verified_matches"] > 0
    assert list(values["skipped"]) == ["bad.jpg"]
    assert "skipped: " in ran.stderr
    assert "bad.jpg" in ran.stderr
    with pycolmap.Database.open(out) as opened:
        assert (opened.num_images(), opened.num_matches()) == (3, values["matches"])
    again = doap(*arguments)
    assert "already up to date" in again.stdout
    assert f"colmap mapper --database_path {out}" in again.stdout


def test_without_matches_colmaps_matcher_is_the_next_step(photos, tmp_path):
    ran = doap(photos, "--out", tmp_path / "database.db", "--max-keypoints", 50, "--no-matches")
    assert ran.exit_code == 0, ran.exception
    assert "colmap exhaustive_matcher" in ran.stdout
    with pycolmap.Database.open(tmp_path / "database.db") as opened:
        assert (opened.num_matches(), opened.num_descriptors()) == (0, opened.num_keypoints())


def test_pairs_are_sequential_or_from_a_file(photos, tmp_path):
    out, pairs = tmp_path / "database.db", tmp_path / "pairs.txt"
    common = (photos, "--out", out, "--max-keypoints", 50, "--json", "--pairs")
    assert json.loads(doap(*common, "sequential", "--overlap", 1).stdout)["pairs"] == 2
    # A skipped photo may still be named in the pair list.
    pairs.write_text("0.png 2.png\n0.png bad.jpg\n")
    assert json.loads(doap(*common, pairs).stdout)["pairs"] == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--pairs", "pairs.txt"), "pairs.txt"),
        (("--descriptor", "nothing"), "nothing"),
        (("--detector", "nothing"), "nothing"),
        (("--descriptor", "teblid", "--no-matches"), "128 real numbers"),
    ],
)
def test_error_is_one_line(photos, tmp_path, arguments, word):
    ran = doap(photos, "--out", tmp_path / "database.db", *arguments)
    # `doap` prints a DoapError as one line and exits with 1.
    assert isinstance(ran.exception, DoapError)
    assert word in str(ran.exception)
    assert "\n" not in str(ran.exception)
    assert ran.stdout == ""


def test_wrong_usage_exits_with_two(photos, tmp_path):
    assert doap(photos, "--out", tmp_path / "database.db", "--camera-mode", "double").exit_code == 2


def test_defaults_are_those_of_the_public_function():
    command, function = inspect.signature(colmap).parameters, inspect.signature(write_colmap).parameters
    for name in ("descriptor", "max_keypoints", "pairs", "overlap", "ratio", "camera_mode", "device"):
        assert command[name].default == function[name].default
