"""The `doap export` command."""

import json

import pytest
import torch

from doap.descriptor import Descriptor
from oracles.photo_patches import write_set
from oracles.photos import write_photo

for library in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(library)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A descriptor and a photo."""
    folder = tmp_path_factory.mktemp("folder")
    torch.manual_seed(0)
    Descriptor.build(dim=16).save(folder / "my.safetensors", extent=2.0)
    write_photo(folder / "photo.png", 0, height=160, width=200)
    return folder


def test_exported_file_replaces_the_descriptor_everywhere(doap, folder, tmp_path):
    out = tmp_path / "my.onnx"
    ran = doap("export", folder / "my.safetensors", "--to", "onnx", "--out", out)
    assert (ran.returncode, ran.stderr) == (0, "")
    first, second, meaning, third = ran.stdout.splitlines()
    assert first.startswith(f"{out}: float32, opset 18, ")
    assert second.startswith("  parity with PyTorch on 72 patches: agreement 1.000000, largest difference ")
    assert meaning.startswith("  float32: as accurate as PyTorch. --int8 PATCHES writes about a quarter of the size")
    assert third == f"  try it: doap match left.jpg right.jpg --descriptor {out}"
    matched = []
    for descriptor in (folder / "my.safetensors", out):
        photo = folder / "photo.png"
        matched.append(json.loads(doap("match", photo, photo, "--descriptor", descriptor, "--json").stdout))
    assert matched[0]["matches"] == matched[1]["matches"] > 50
    ran = doap("extract", folder, "--out", tmp_path / "features", "--descriptor", out, "--json")
    assert ran.returncode == 0, ran.stderr


def test_int8_is_calibrated_with_a_set_and_reported_as_json(doap, folder, tmp_path):
    patches = write_set(tmp_path / "my.patches", folder / "photo.png", max_keypoints=100)
    out = tmp_path / "int8.onnx"
    ran = doap("export", folder / "my.safetensors", "--int8", patches, "--out", out, "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    values = json.loads(ran.stdout)
    assert set(values) == {"out", "format", "opset", "precision", "patches", "max_difference", "agreement"}
    assert (values["out"], values["format"], values["precision"], values["patches"]) == (str(out), "onnx", "int8", 50)
    assert 0.9 < values["agreement"] < 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["sift", "--out", "a.onnx"], 1, ["sift: no such file", "Expected a *.safetensors file", "doap-128"]),
        (["{folder}/photo.png", "--out", "a.onnx"], 1, ["not a safetensors file"]),
        (["doap-128", "--out", "a.onnx", "--int8", "{folder}"], 1, ["not a patch set"]),
        (["doap-128", "--out", "{folder}/photo.png/a.onnx"], 1, ["expected a folder to write to"]),
        (["doap-128", "--out", "a.onnx", "--to", "tflite"], 1, ["tflite", "onnx"]),
        (["doap-128"], 2, ["--out"]),
    ],
)
def test_errors_are_reported(doap, folder, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    ran = doap("export", *(text.format(folder=folder) for text in arguments))
    assert (ran.returncode, ran.stdout) == (code, "")
    assert code == 2 or len(ran.stderr.splitlines()) == 1
    for word in words:
        assert word in ran.stderr
    assert not list(tmp_path.iterdir())
