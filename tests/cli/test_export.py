"""The commands that write files of other programs: `doap export`, `colmap`, `hloc` and `opensfm`."""

import json

import cv2
import pytest
import torch

from doap.descriptor import Descriptor
from oracles.photos import write_photo
from oracles.plane_scene import VIEWS, pose, render

h5py, pycolmap = pytest.importorskip("h5py"), pytest.importorskip("pycolmap")
for needed in ("onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(needed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A descriptor and a photo."""
    folder = tmp_path_factory.mktemp("folder")
    torch.manual_seed(0)
    Descriptor.build(dim=16).save(folder / "my.safetensors", extent=2.0)
    write_photo(folder / "photo.png", 0, height=160, width=200)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Three views of a plane and an empty file."""
    folder = tmp_path_factory.mktemp("photos")
    for number, view in enumerate(VIEWS[:3]):
        cv2.imwrite(str(folder / f"{number}.png"), render(pose(*view)))
    (folder / "bad.jpg").write_bytes(b"")
    return folder


def test_exported_file_replaces_the_descriptor_everywhere(doap, folder, tmp_path):
    out = tmp_path / "my.onnx"
    ran = doap("export", folder / "my.safetensors", "--to", "onnx", "--out", out)
    assert (ran.returncode, ran.stderr) == (0, "")
    first, second, third = ran.stdout.splitlines()
    assert first.startswith(f"{out}: float32, opset 18, ")
    assert second.startswith("  parity with PyTorch on 72 patches: agreement 1.000000, largest difference ")
    assert third == f"  try it: doap match left.jpg right.jpg --descriptor {out}"
    matched = []
    for descriptor in (folder / "my.safetensors", out):
        photo = folder / "photo.png"
        matched.append(json.loads(doap("match", photo, photo, "--descriptor", descriptor, "--json").stdout))
    assert matched[0]["matches"] == matched[1]["matches"] > 50


def test_a_database_is_written_once_and_reported(doap, photos, tmp_path):
    out = tmp_path / "new folder" / "database.db"
    arguments = ("colmap", photos, "--out", out, "--max-keypoints", 100, "--camera-mode", "per-image", "--ratio", 0.95)
    ran = doap(*arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert (values["out"], values["images"], values["pairs"], values["unchanged"]) == (str(out), 3, 3, False)
    assert values["keypoints"] > values["matches"] >= values["verified_matches"] > 0
    assert list(values["skipped"]) == ["bad.jpg"]
    assert any(line.startswith("skipped: ") and "bad.jpg" in line for line in ran.stderr.splitlines())
    with pycolmap.Database.open(out) as opened:
        assert (opened.num_images(), opened.num_matches()) == (3, values["matches"])
    again = doap(*arguments)
    assert "already up to date" in again.stdout
    assert f"colmap mapper --database_path {out}" in again.stdout


def test_a_folder_becomes_features_and_matches_of_hloc(doap, photos, tmp_path):
    (tmp_path / "pairs.txt").write_text("0.png 1.png\n2.png 0.png\nbad.jpg 0.png\n")
    features, matches = tmp_path / "features.h5", tmp_path / "matches.h5"
    command = ["hloc", photos, "--out", features, "--max-keypoints", 50]
    ran = doap(*command, "--pairs", tmp_path / "pairs.txt", "--matches", matches, "--json")
    assert ran.returncode == 0, ran.stderr
    values = json.loads(ran.stdout)
    assert (values["extracted"], values["reused"], list(values["skipped"])) == (3, 0, ["bad.jpg"])
    assert (values["out"], values["matches"], values["pairs"]) == (str(features), str(matches), 2)
    with h5py.File(features, "r") as file:
        assert sorted(file) == ["0.png", "1.png", "2.png"]
    with h5py.File(matches, "r") as file:
        assert sorted(file["0.png"]) == ["1.png", "2.png"]
    assert "0 images extracted, 3 unchanged, 1 skipped" in doap(*command).stdout
    assert doap(*command, "--matches", matches).returncode == 2
