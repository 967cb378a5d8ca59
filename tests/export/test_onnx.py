"""ONNX files, held against the descriptors they were made of."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import nn

import doap
from doap.baselines import OnnxDescriber
from doap.data.store import open_set
from doap.describer import Describer
from doap.descriptor import Descriptor
from doap.errors import ArgumentError, DataError, MissingExtra, ShapeError
from doap.export.onnx import OPSET, made_up_patches, write_onnx
from doap.functional import unpack_bits
from oracles.photo_patches import write_set
from oracles.photos import write_photo

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photos") / "photo.png", seed=3)


@pytest.fixture(scope="module", params=["doap-128", "doap-256bit"])
def shipped(request, tmp_path_factory):
    """A descriptor that ships, its file, and what was told of it."""
    descriptor = Descriptor.load(request.param, precision="float32")
    written = write_onnx(descriptor, tmp_path_factory.mktemp("onnx") / "folder" / f"{request.param}.onnx")
    return descriptor, written


@pytest.fixture(scope="module")
def patch_set(photo, tmp_path_factory):
    return open_set(write_set(tmp_path_factory.mktemp("sets") / "photo.patches", photo))


class Changed(nn.Module):
    """Numbers of a patch that are others once it is exported."""

    def forward(self, patches):
        numbers = patches[:, 0, :2, :4].flatten(1)
        return numbers.flip(1) if torch.compiler.is_compiling() else numbers


class Branching(nn.Module):
    """What it computes depends on what it sees, which a graph cannot hold."""

    def forward(self, patches):
        numbers = patches.flatten(1)[:, :8]
        return numbers if bool(patches.sum() > 0) else -numbers


def test_it_describes_a_photo_as_the_descriptor_does(shipped, photo):
    descriptor, written = shipped
    exported: Describer = doap.load(written.path)
    for face in ("kind", "dim", "patch_size", "extent"):
        assert getattr(exported, face) == getattr(descriptor, face)
    of_torch, of_onnx = (doap.extract(photo, one, max_keypoints=600) for one in (descriptor, exported))
    assert len(of_torch) > 150
    assert of_onnx.descriptors.dtype == of_torch.descriptors.dtype
    np.testing.assert_array_equal(of_onnx.frames, of_torch.frames)
    if descriptor.kind == "real":
        assert (of_onnx.descriptors - of_torch.descriptors).abs().max() < 1e-4
    else:
        differ = unpack_bits(of_onnx.descriptors) != unpack_bits(of_torch.descriptors)
        assert differ.float().mean() < 1e-4


@pytest.mark.parametrize("count", [0, 1, 3, 66])
def test_any_number_of_patches_is_described(shipped, count):
    descriptor, written = shipped
    patches = made_up_patches(32)[:count]
    found, expected = OnnxDescriber(written.path).describe(patches), descriptor.describe(patches)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_opencv_reads_it_too(shipped):
    """Who has OpenCV in a product has its DNN there; it reads less of ONNX than ONNX Runtime does."""
    descriptor, written = shipped
    network = cv2.dnn.readNetFromONNX(str(written.path))
    for count in (7, 1, 66):
        patches = made_up_patches(32)[:count]
        network.setInput(patches.numpy())
        found, expected = network.forward(), descriptor.describe(patches).numpy()
        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), atol=1e-4, rtol=0)


def test_the_file_is_one_and_tells_what_a_loader_needs(shipped):
    descriptor, written = shipped
    assert [path.name for path in written.path.parent.iterdir()] == [written.path.name]
    model = onnx.load(written.path)
    onnx.checker.check_model(model)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", OPSET)]
    told = {one.key: one.value for one in model.metadata_props}
    assert (told["doap.extent"], told["doap.patch_size"], told["doap.kind"]) == ("1.5", "32", descriptor.kind)
    assert (told["doap.network"], told["doap.numbers"], told["doap.version"]) == ("l2net", "float32", doap.__version__)
    assert "434 Apache-2.0" in told["doap.licences"]
    assert (written.opset, written.numbers, written.patches) == (OPSET, "float32", 1 + 7 + 64)
    assert written.difference < 1e-4
    assert written.agreement > 0.9999


def test_the_file_does_not_tell_where_it_was_made(shipped):
    content = shipped[1].path.read_bytes()
    for place in (str(Path(doap.__file__).parent), str(Path(torch.__file__).parent), ".py"):
        assert place.encode() not in content


def test_it_is_pickled_as_its_path(shipped):
    describer = OnnxDescriber(shipped[1].path)
    pickled = pickle.dumps(describer)
    assert len(pickled) < 1000
    patches = made_up_patches(32)[:3]
    assert torch.equal(pickle.loads(pickled).describe(patches), describer.describe(patches))


def test_patches_that_are_not_floats_are_refused(shipped):
    with pytest.raises(ArgumentError, match=r"expected floats in 0…1, got torch.uint8; divide by 255"):
        OnnxDescriber(shipped[1].path).describe(torch.zeros(1, 1, 32, 32, dtype=torch.uint8))


def test_only_load_opens_onnx_files_and_wants_no_network_beside_them(shipped):
    with pytest.raises(ArgumentError, match=r"network: expected a \*\.safetensors file"):
        doap.load(shipped[1].path, network=nn.Identity())
    with pytest.raises(DataError, match="not a safetensors file"):
        Descriptor.load(shipped[1].path)


def test_a_spatial_transformer_in_training_is_exported_and_not_changed(tmp_path):
    torch.manual_seed(0)
    descriptor = Descriptor.build("l2net-st", "binary", dim=16).train()
    # Moves the running statistics, and the transformation away from the identity.
    descriptor(torch.rand(8, 1, 42, 42))
    nn.init.normal_(descriptor.network.align.affine.weight, std=0.01)
    before = copy.deepcopy(descriptor.state_dict())
    written = write_onnx(descriptor, tmp_path / "st.onnx")
    assert written.agreement == 1
    assert doap.load(written.path).patch_size == 42
    assert descriptor.training
    assert all(torch.equal(value, before[key]) for key, value in descriptor.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "rule"), [("real", "numbers within 0.0001 of torch's"), ("binary", "the same bits as torch's")]
)
def test_what_differs_is_not_written(tmp_path, kind, rule):
    out = tmp_path / "changed.onnx"
    out.write_text("as it was")

    class Signed(Changed):
        def forward(self, patches):
            return super().forward(patches) - 0.5

    with pytest.raises(DataError, match=rf"changed.onnx: expected {rule}, got others .*nothing was written"):
        write_onnx(Descriptor(Signed(), 16, kind), out)
    assert [path.name for path in tmp_path.iterdir()] == ["changed.onnx"]
    assert out.read_text() == "as it was"


def test_a_network_that_no_graph_can_hold_is_told(tmp_path):
    with pytest.raises(ArgumentError, match="expected a network that torch can export to ONNX, got one it cannot"):
        write_onnx(Descriptor(Branching(), 16), tmp_path / "branching.onnx")
    assert not list(tmp_path.iterdir())


def test_int8_is_smaller_and_tells_what_it_loses(shipped, patch_set, tmp_path):
    descriptor, precise = shipped
    written = write_onnx(descriptor, tmp_path / "int8.onnx", calibration=patch_set)
    assert (written.numbers, written.patches) == ("int8", len(patch_set.patches) // 2)
    assert 0.95 < written.agreement < 1
    assert written.path.stat().st_size < 0.3 * precise.path.stat().st_size
    exported = doap.load(written.path)
    assert (exported.extent, exported.metadata["numbers"]) == (1.5, "int8")
    assert exported.describe(made_up_patches(32)).shape[1] == (128 if descriptor.kind == "real" else 32)


def test_patches_that_cannot_calibrate_are_refused(patch_set, photo, tmp_path):
    with pytest.raises(ShapeError, match=r"calibration: expected \(N, 42, 42\), got .*32, 32"):
        write_onnx(Descriptor.build("l2net-st"), tmp_path / "a.onnx", calibration=patch_set)
    few = open_set(write_set(tmp_path / "few.patches", photo, max_keypoints=9))
    with pytest.raises(ArgumentError, match="calibration: expected 64 patches or more, got 9"):
        write_onnx(Descriptor.build(), tmp_path / "a.onnx", calibration=few)


def test_missing_onnxscript_names_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtra, match=r"doap\[export\]"):
        write_onnx(Descriptor.build(), tmp_path / "a.onnx")
