"""Descriptors in ONNX files, compared with the torch networks they were exported from."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from doap._support.errors import DataError
from doap.baselines import OnnxDescriber
from doap.describer import Describer

pytest.importorskip("onnxruntime")


class Bits(nn.Module):
    """Two pixels of a patch as bytes."""

    def forward(self, patches):
        return (patches[:, 0, 0, :2] * 255).to(torch.uint8)


def export(network, path, patch, shapes):
    pytest.importorskip("onnxscript")
    # The exporter warns about its own internals.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(), (patch,), path, dynamo=True, dynamic_shapes=(shapes,), verbose=False, external_data=False
        )
    return path


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 6))


@pytest.fixture(scope="module")
def file(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    return export(network, path, torch.zeros(2, 1, 16, 16), {0: "N"})


def test_an_onnx_file_describes_patches_like_the_network(network, file):
    baseline: Describer = OnnxDescriber(file)
    assert (baseline.name, baseline.patch_size, baseline.dim, baseline.kind) == ("small", 16, 6, "real")
    patches = torch.rand(600, 1, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(baseline.describe_patches(patches), network(patches), atol=1e-5, rtol=1e-5)
    assert baseline.describe_patches(patches[:0]).shape == (0, 6)
    assert baseline.fingerprint() == OnnxDescriber(file).fingerprint()


def test_a_uint8_output_is_packed_bits(tmp_path):
    baseline = OnnxDescriber(export(Bits(), tmp_path / "bits.onnx", torch.zeros(2, 1, 8, 8), {0: "N"}))
    assert (baseline.dim, baseline.kind) == (16, "binary")
    assert baseline.describe_patches(torch.ones(3, 1, 8, 8)).tolist() == [[255, 255]] * 3


def test_a_fixed_batch_size_is_an_error(network, tmp_path):
    path = export(network, tmp_path / "fixed.onnx", torch.zeros(2, 1, 16, 16), {})
    with pytest.raises(DataError):
        OnnxDescriber(path)


def hide(tensor, location):
    """Make a tensor refer to another file."""
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location


TENSORS = {
    "initializer": lambda model: model.graph.initializer[0],
    "constant": lambda model: model.graph.node.add(op_type="Constant", output=["c"]).attribute.add(name="value").t,
    "branch": lambda model: model.graph.node.add(op_type="If").attribute.add(name="then_branch").g.initializer.add(),
    "function": lambda model: model.functions.add().node.add(op_type="Constant").attribute.add(name="value").t,
    "sparse": lambda model: model.graph.sparse_initializer.add().values,
}
LOCATIONS = ["weights.bin", "../weights.bin", "{folder}/weights.bin", "/etc/passwd", "*/_ORT_MEM_ADDR_/*"]


@pytest.mark.parametrize(
    ("tensor", "location"),
    [("initializer", location) for location in LOCATIONS] + [(tensor, "w") for tensor in TENSORS],
)
def test_weights_in_other_files_are_refused(file, tmp_path, capfd, tensor, location):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(file)
    tensor = TENSORS[tensor](model)
    for folder in (tmp_path, tmp_path / "model"):
        folder.mkdir(exist_ok=True)
        (folder / "weights.bin").write_bytes(tensor.raw_data)
    hide(tensor, location.format(folder=tmp_path))
    (tmp_path / "model" / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(DataError):
        OnnxDescriber(tmp_path / "model" / "m.onnx")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("key", ["extent", "ratio"])
@pytest.mark.parametrize("value", ["wide", "-1", "nan", "0"])
def test_impossible_metadata_are_an_error(file, tmp_path, key, value):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(file)
    onnx.helper.set_model_props(model, {f"doap.{key}": value})
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(DataError):
        OnnxDescriber(tmp_path / "m.onnx")


def test_a_file_that_is_not_onnx_is_an_error(tmp_path):
    with pytest.raises(DataError):
        OnnxDescriber(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("not a graph")
    with pytest.raises(DataError):
        OnnxDescriber(tmp_path / "text.onnx")
