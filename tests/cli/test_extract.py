"""`doap extract` as a person types it."""

import json

import pytest

from doap.descriptor import Descriptor
from doap.scale import FeatureSet
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
    command = ["extract", images, "--format", "hloc", "--out", features, "--max-keypoints", 50]
    ran = doap(*command, "--pairs", tmp_path / "pairs.txt", "--matches", matches, "--json")
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stderr.splitlines() if "cut.png" in line and "truncated" in line]
    told = json.loads(ran.stdout)
    assert (told["extracted"], told["reused"], list(told["skipped"])) == (3, 0, ["cut.png"])
    assert (told["out"], told["matches"], told["pairs"]) == (str(features), str(matches), 2)
    with h5py.File(features, "r") as file:
        assert sorted(file) == ["0.png", "1.png", "2.png"]
    with h5py.File(matches, "r") as file:
        assert sorted(file["0.png"]) == ["1.png", "2.png"]
    again = doap(*command)
    assert "0 images added, 3 there before, 1 left out" in again.stdout


def test_faults_are_one_line(doap, images, tmp_path):
    out = ["--format", "hloc", "--out", tmp_path / "f.h5"]
    for arguments, word in [
        ([tmp_path / "none", *out], "expected a folder of images"),
        ([images, *out, "--detector", "swift"], "detector: expected one of"),
        ([images, *out, "--pairs", tmp_path / "none.txt", "--matches", tmp_path / "m.h5"], "none.txt"),
    ]:
        ran = doap("extract", *arguments)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert len([line for line in ran.stderr.splitlines() if line.startswith("doap: ") and word in line]) == 1
        assert "Traceback" not in ran.stderr
    assert not (tmp_path / "f.h5").exists()


def test_a_folder_becomes_a_set_of_features(doap, images, tmp_path):
    (images / "cut.png").write_bytes((images / "0.png").read_bytes()[:2000])
    out = tmp_path / "features"
    command = ["extract", images, "--out", out, "--descriptor", "teblid", "--max-keypoints", 50, "--workers", 1]
    ran = doap(*command, "--json")
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stderr.splitlines() if "cut.png" in line and "truncated" in line]
    told = json.loads(ran.stdout)
    assert (told["out"], told["extracted"], told["reused"], list(told["skipped"])) == (str(out), 3, 0, ["cut.png"])
    assert set(told) == {"out", "extracted", "reused", "skipped", "removed", "seconds", "images_per_second"}
    features = FeatureSet(out)
    assert features.names == ["0.png", "1.png", "2.png"]
    assert (features.extractor.descriptor, features.extractor.detector) == ("teblid", "sift")
    (images / "2.png").unlink()
    again = doap(*command, "--format", "parquet")
    assert "0 images added, 3 there before, 1 left out" in again.stdout
    assert f"1 are no longer in {images}" in again.stdout


def test_a_descriptor_in_a_file_is_found_from_everywhere(doap, images, tmp_path, monkeypatch):
    Descriptor.build().save(tmp_path / "mine.safetensors")
    monkeypatch.chdir(tmp_path)
    settings = ["--descriptor", "mine.safetensors", "--max-keypoints", 50, "--workers", 1, "--stored", "uint8"]
    ran = doap("extract", "images", "--out", "features", *settings)
    assert ran.returncode == 0, ran.stderr
    features = FeatureSet(tmp_path / "features")
    assert (features.extractor.descriptor, features.extractor.stored) == (str(tmp_path / "mine.safetensors"), "uint8")
    assert len(features) == 3


def test_wrong_usage_exits_with_two(doap, images, tmp_path):
    assert doap("extract", images, "--out", tmp_path / "f.h5", "--format", "hlok").returncode == 2
    assert doap("extract", images, "--out", tmp_path / "f.h5").returncode == 2
    lonely = doap("extract", images, "--format", "hloc", "--out", tmp_path / "f.h5", "--matches", tmp_path / "m.h5")
    assert lonely.returncode == 2
    folder = ["extract", images, "--out", tmp_path / "features"]
    for arguments in (
        [*folder, "--pairs", "p.txt", "--matches", "m.h5"],
        [*folder, "--ratio", "0.9"],
        [*folder, "--address", "auto"],
        [*folder, "--engine", "spark"],
        [*folder, "--stored", "bits"],
        [*folder, "--workers", "0"],
        ["extract", images, "--format", "hloc", "--out", tmp_path / "f.h5", "--engine", "ray"],
    ):
        assert doap(*arguments).returncode == 2
    assert not (tmp_path / "features").exists()
