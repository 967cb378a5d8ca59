"""The `doap hloc` command."""

import json

import pytest

from oracles.photos import write_photo

h5py = pytest.importorskip("h5py")


@pytest.fixture
def images(tmp_path):
    for seed in range(3):
        write_photo(tmp_path / "images" / f"{seed}.png", seed, 120, 160)
    return tmp_path / "images"


def test_a_folder_becomes_features_and_matches(doap, images, tmp_path):
    (images / "cut.png").write_bytes((images / "0.png").read_bytes()[:2000])
    (tmp_path / "pairs.txt").write_text("0.png 1.png\n2.png 0.png\ncut.png 0.png\n")
    features, matches = tmp_path / "features.h5", tmp_path / "matches.h5"
    command = ["hloc", images, "--out", features, "--max-keypoints", 50]
    ran = doap(*command, "--pairs", tmp_path / "pairs.txt", "--matches", matches, "--json")
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stderr.splitlines() if "cut.png" in line and "truncated" in line]
    values = json.loads(ran.stdout)
    assert (values["extracted"], values["reused"], list(values["skipped"])) == (3, 0, ["cut.png"])
    assert (values["out"], values["matches"], values["pairs"]) == (str(features), str(matches), 2)
    with h5py.File(features, "r") as file:
        assert sorted(file) == ["0.png", "1.png", "2.png"]
    with h5py.File(matches, "r") as file:
        assert sorted(file["0.png"]) == ["1.png", "2.png"]
    again = doap(*command)
    assert "0 images extracted, 3 unchanged, 1 skipped" in again.stdout


def test_errors_are_one_line(doap, images, tmp_path):
    out = ["--out", tmp_path / "f.h5"]
    for arguments, word in [
        ([tmp_path / "none", *out], "expected a folder of images"),
        ([images, *out, "--detector", "swift"], "detector: expected one of"),
        ([images, *out, "--pairs", tmp_path / "none.txt", "--matches", tmp_path / "m.h5"], "none.txt"),
    ]:
        ran = doap("hloc", *arguments)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert len([line for line in ran.stderr.splitlines() if line.startswith("doap: ") and word in line]) == 1
        assert "Traceback" not in ran.stderr
    assert not (tmp_path / "f.h5").exists()


def test_wrong_usage_exits_with_two(doap, images, tmp_path):
    out = ["--out", tmp_path / "f.h5"]
    assert doap("hloc", images).returncode == 2
    assert doap("hloc", images, *out, "--matches", tmp_path / "m.h5").returncode == 2
    assert doap("hloc", images, *out, "--engine", "ray").returncode == 2
