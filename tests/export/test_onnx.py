"""Exported ONNX files agree with their descriptors."""

from __future__ import annotations

import copy
import pickle
import signal
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import nn

import doap
from doap._support.errors import ArgumentError, DataError, ShapeError
from doap.baselines import OnnxDescriber
from doap.data.store import open_set
from doap.describer import Describer
from doap.descriptor import Descriptor
from doap.export.onnx import OPSET, make_test_patches, write_onnx
from doap.metrics import unpack_bits
from oracles.photo_patches import write_set
from oracles.photos import write_photo

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    return write_photo(tmp_path_factory.mktemp("photos") / "photo.png", seed=3)


# Extent, network and number of photos under Apache-2.0.
METADATA = {
    "doap-256bit": ("1.0", "l2net", 434),
    "doap-fast": ("1.0", "fast", 172),
}


@pytest.fixture(scope="module", params=METADATA)
def shipped(request, tmp_path_factory):
    """A shipped descriptor and the summary of its export."""
    descriptor = Descriptor.load(request.param, precision="float32")
    written = write_onnx(descriptor, tmp_path_factory.mktemp("onnx") / "folder" / f"{request.param}.onnx")
    return descriptor, written


@pytest.fixture(scope="module")
def patch_set(photo, tmp_path_factory):
    return open_set(write_set(tmp_path_factory.mktemp("sets") / "photo.patches", photo))


class Changed(nn.Module):
    """A network whose output changes when it is exported."""

    def forward(self, patches):
        numbers = patches[:, 0, :2, :4].flatten(1)
        return numbers.flip(1) if torch.compiler.is_compiling() else numbers


class Branching(nn.Module):
    """A network with a data-dependent branch, which a graph cannot express."""

    def forward(self, patches):
        numbers = patches.flatten(1)[:, :8]
        return numbers if bool(patches.sum() > 0) else -numbers


class Flipping(nn.Module):
    """A network with one small activation, whose sign changes when it is exported, and seven larger ones."""

    def __init__(self, small, large):
        super().__init__()
        self.small, self.large = small, large

    def forward(self, patches):
        numbers = self.large * (1 + patches[:, 0, :2, :4].flatten(1).abs())
        small = -self.small if torch.compiler.is_compiling() else self.small
        return torch.cat([torch.full_like(numbers[:, :1], small), numbers[:, 1:]], dim=1)


def test_features_of_a_photo_agree_with_the_descriptor(shipped, photo):
    descriptor, written = shipped
    exported: Describer = doap.load(written.out)
    for name in ("kind", "dim", "patch_size", "extent", "ratio"):
        assert getattr(exported, name) == getattr(descriptor, name)
    of_torch, of_onnx = (doap.extract(photo, one, max_keypoints=600) for one in (descriptor, exported))
    assert len(of_torch) > 150
    assert of_onnx.descriptors.dtype == of_torch.descriptors.dtype
    np.testing.assert_array_equal(of_onnx.frames, of_torch.frames)
    if descriptor.kind == "real":
        assert (of_onnx.descriptors - of_torch.descriptors).abs().max() < 1e-4
    else:
        differ = unpack_bits(of_onnx.descriptors) != unpack_bits(of_torch.descriptors)
        assert differ.float().mean() < 1e-4


def test_onnx_runtime_and_opencvs_dnn_module_describe_any_number_of_patches(shipped):
    """OpenCV supports fewer ONNX operators than ONNX Runtime."""
    descriptor, written = shipped
    network = cv2.dnn.readNetFromONNX(str(written.out))
    describer = OnnxDescriber(written.out)
    for count in (7, 1, 66):
        patches = make_test_patches(32)[:count]
        network.setInput(patches.numpy())
        expected = descriptor.describe_patches(patches)
        torch.testing.assert_close(describer.describe_patches(patches), expected, atol=1e-4, rtol=0)
        found = torch.from_numpy(network.forward()).to(expected.dtype)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert describer.describe_patches(patches[:0]).shape == (0, expected.shape[1])


def test_the_export_is_one_file_with_the_metadata_that_a_loader_needs(shipped):
    descriptor, written = shipped
    assert [path.name for path in written.out.parent.iterdir()] == [written.out.name]
    model = onnx.load(written.out)
    onnx.checker.check_model(model)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", OPSET)]
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    extent, network, photos = METADATA[written.out.stem]
    assert (metadata["doap.extent"], metadata["doap.patch_size"]) == (extent, "32")
    assert (metadata["doap.kind"], metadata["doap.dim"]) == (descriptor.kind, str(descriptor.dim))
    assert (metadata["doap.network"], metadata["doap.precision"]) == (network, "float32")
    assert metadata["doap.version"] == doap.__version__
    assert f"{photos} Apache-2.0" in metadata["doap.licences"]
    assert (written.opset, written.precision, written.patches) == (OPSET, "float32", 1 + 7 + 64)
    assert written.max_difference < 1e-4
    assert written.agreement > 0.9999


def test_the_file_contains_no_paths_of_the_exporting_machine(shipped):
    content = shipped[1].out.read_bytes()
    for path in (str(Path(doap.__file__).parent), str(Path(torch.__file__).parent), ".py"):
        assert path.encode() not in content


def test_an_onnx_describer_is_pickled_as_its_path(shipped):
    describer = OnnxDescriber(shipped[1].out)
    pickled = pickle.dumps(describer)
    assert len(pickled) < 1000
    patches = make_test_patches(32)[:3]
    assert torch.equal(pickle.loads(pickled).describe_patches(patches), describer.describe_patches(patches))


def test_a_spatial_transformer_in_training_mode_is_exported_and_not_modified(tmp_path):
    torch.manual_seed(0)
    descriptor = Descriptor.build("l2net-st", "binary", dim=16).train()
    # Change the running statistics, and move the transformation away from the identity.
    descriptor(torch.rand(8, 1, 42, 42))
    nn.init.normal_(descriptor.network.align.affine.weight, std=0.01)
    before = copy.deepcopy(descriptor.state_dict())
    written = write_onnx(descriptor, tmp_path / "st.onnx")
    assert written.agreement == 1
    assert doap.load(written.out).patch_size == 42
    assert descriptor.training
    assert all(torch.equal(value, before[key]) for key, value in descriptor.state_dict().items())


def test_a_file_that_differs_is_not_written(tmp_path):
    out = tmp_path / "changed.onnx"
    out.write_text("unchanged")

    class Signed(Changed):
        def forward(self, patches):
            return super().forward(patches) - 0.5

    with pytest.raises(DataError):
        write_onnx(Descriptor(Signed(), 16), out)
    assert [path.name for path in tmp_path.iterdir()] == ["changed.onnx"]
    assert out.read_text() == "unchanged"


def test_a_bit_may_differ_only_if_its_activation_is_small_compared_with_the_others(tmp_path):
    """The limit is 1e-4 of the root mean square, not 1e-4 itself."""
    written = write_onnx(Descriptor(Flipping(small=1e-3, large=100.0), 16, "binary"), tmp_path / "large.onnx")
    assert (written.max_difference, written.agreement) == (1 / 8, 7 / 8)
    with pytest.raises(DataError):
        write_onnx(Descriptor(Flipping(small=5e-5, large=0.01), 16, "binary"), tmp_path / "small.onnx")


def test_a_network_that_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(ArgumentError):
        write_onnx(Descriptor(Branching(), 16), tmp_path / "branching.onnx")
    assert not list(tmp_path.iterdir())


def test_int8_is_smaller_and_reports_its_agreement(patch_set, tmp_path):
    descriptor = Descriptor.load("doap-fast")
    written = write_onnx(descriptor, tmp_path / "int8.onnx", calibration=patch_set)
    assert (written.precision, written.patches) == ("int8", len(patch_set.patches) // 2)
    assert 0.95 < written.agreement < 1
    assert written.out.stat().st_size < 0.4 * 4 * sum(weights.numel() for weights in descriptor.parameters())
    exported = doap.load(written.out)
    assert exported.extent == float(METADATA["doap-fast"][0])
    assert exported.describe_patches(make_test_patches(32)).shape[1] == 128


def test_unsuitable_calibration_patches_are_refused(patch_set, photo, tmp_path):
    with pytest.raises(ShapeError):
        write_onnx(Descriptor.build("l2net-st"), tmp_path / "a.onnx", calibration=patch_set)
    few = open_set(write_set(tmp_path / "few.patches", photo, max_keypoints=9))
    with pytest.raises(ArgumentError):
        write_onnx(Descriptor.build(), tmp_path / "a.onnx", calibration=few)


def test_an_interrupt_that_torch_discards_is_not_a_fault_of_the_network(monkeypatch, tmp_path):
    def discard_interrupt(*_, **__):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise torch.onnx.errors.OnnxExporterError from AttributeError("a module that is imported in part")

    monkeypatch.setattr(torch.onnx, "export", discard_interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_onnx(Descriptor.build("fast", dim=16), tmp_path / "a.onnx")
