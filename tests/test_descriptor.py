"""`Descriptor`: describing patches, saving and loading."""

import copy
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import doap
from doap._support.errors import ArgumentError, DataError, ShapeError
from doap.descriptor import Descriptor, standardise

SPEC = Descriptor.build(dim=16).spec.model_dump()
WEIGHTS = {name: tensor.contiguous() for name, tensor in Descriptor.build(dim=16).network.state_dict().items()}
# A network that accepts patches of any size.
ANY_SIZE = nn.Sequential(nn.Conv2d(1, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def patches(number=5, size=32):
    return torch.rand(number, 1, size, size, generator=torch.Generator().manual_seed(0))


class Mean(nn.Module):
    """A network that is not part of doap."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, patches):
        return patches.mean(dim=(1, 2, 3))[:, None] * self.scale


@pytest.mark.parametrize(
    ("kind", "shape", "dtype"), [("real", (5, 64), torch.float32), ("binary", (5, 8), torch.uint8)]
)
@pytest.mark.parametrize("network", ["l2net", "l2net-st"])
def test_a_saved_descriptor_loads_unchanged(tmp_path, network, kind, shape, dtype):
    torch.manual_seed(0)
    descriptor = Descriptor.build(network, kind, dim=64)
    descriptor(patches(8, descriptor.patch_size))  # updates the running statistics, which must be saved too
    path = descriptor.save(tmp_path / "d.safetensors", recipe={"steps": 3}, ledger=["CC0"])
    back = doap.load(path)
    described = back.describe_patches(patches(5, back.patch_size))
    assert (described.shape, described.dtype) == (shape, dtype)
    assert back.describe_patches(patches(0, back.patch_size)).shape == (0, shape[1])
    assert torch.equal(described, descriptor.describe_patches(patches(5, back.patch_size)))
    assert (back.dim, back.kind, back.patch_size) == (64, kind, descriptor.patch_size)
    assert back.metadata == {"recipe": {"steps": 3}, "ledger": ["CC0"], "version": doap.__version__}
    assert back.spec == descriptor.spec
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_descriptor_keeps_its_ratio_which_does_not_change_its_fingerprint(tmp_path):
    descriptor = Descriptor.build(dim=16)
    selected = doap.load(descriptor.save(tmp_path / "selected.safetensors", ratio=0.7))
    saved = doap.load(selected.save(tmp_path / "saved.safetensors"))
    assert (descriptor.ratio, selected.ratio, saved.ratio) == (0.9, 0.7, 0.7)
    assert selected.fingerprint() == descriptor.fingerprint()


@pytest.mark.parametrize("ratio", [0, -0.1, 1.1, float("nan"), None, "0.9", [0.9]])
def test_an_impossible_ratio_is_neither_loaded_nor_saved(tmp_path, ratio):
    header = {"format": 1, "spec": SPEC, "ratio": ratio}
    save_file(WEIGHTS, tmp_path / "d.safetensors", {"doap": json.dumps(header)})
    with pytest.raises(DataError, match=r"d\.safetensors: ratio: "):
        doap.load(tmp_path / "d.safetensors")
    with pytest.raises(ArgumentError, match="ratio: "):
        Descriptor.build(dim=16).save(tmp_path / "new.safetensors", ratio=ratio)
    assert not (tmp_path / "new.safetensors").exists()


@pytest.mark.slow
def test_half_weights_take_half_the_space_and_change_descriptors_little(tmp_path):
    torch.manual_seed(0)
    descriptor = Descriptor.build(dim=128)
    descriptor(patches(8))
    whole, half = descriptor.save(tmp_path / "whole"), descriptor.save(tmp_path / "half", half=True)
    assert half.stat().st_size < 0.51 * whole.stat().st_size
    back = doap.load(half)
    assert {parameter.dtype for parameter in back.parameters()} == {torch.float32}
    torch.testing.assert_close(
        back.describe_patches(patches()), descriptor.describe_patches(patches()), atol=2e-3, rtol=0
    )


@pytest.mark.slow
def test_torch_exports_a_descriptor_for_any_number_of_patches(tmp_path):
    descriptor = Descriptor.load("doap-128").to(memory_format=torch.contiguous_format)
    program = torch.export.export(descriptor, (patches(2),), dynamic_shapes=({0: torch.export.Dim("N")},))
    torch.export.save(program, tmp_path / "d.pt2")
    again = torch.export.load(tmp_path / "d.pt2").module()
    for number in (1, 77):
        torch.testing.assert_close(again(patches(number)), descriptor(patches(number)), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("supported", [True, False])
def test_auto_precision_is_bfloat16_where_it_was_measured_and_is_fast(tmp_path, monkeypatch, supported):
    monkeypatch.setattr("doap._support.device.multiplies_bfloat16", lambda device: supported)
    torch.manual_seed(0)
    plain, given = Descriptor.build(dim=16), patches(20)
    measured = doap.load(plain.save(tmp_path / "d.safetensors", precision="bfloat16"))
    assert (plain.spec.precision, measured.spec.precision) == ("float32", "bfloat16")
    assert torch.equal(measured.describe_patches(given), plain.describe_patches(given)) != supported
    # Training has its own precision.
    assert torch.equal(measured(given), plain.eval()(given))
    with torch.autocast("cpu", torch.bfloat16):
        in_autocast = plain.describe_patches(given)
    measured.precision = "bfloat16"
    assert torch.equal(in_autocast, measured.describe_patches(given))
    plain.precision = "float32"
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.equal(plain.describe_patches(given), in_autocast)


def test_an_extent_and_a_precision_are_checked_and_saved(tmp_path):
    descriptor = Descriptor.build(dim=16)
    for wrong in ({"precision": "int3"}, {"extent": 0}):
        with pytest.raises(ArgumentError):
            descriptor.save(tmp_path / "d.safetensors", **wrong)
    assert not list(tmp_path.iterdir())
    spec = doap.load(descriptor.save(tmp_path / "d.safetensors", extent=1.25, precision="bfloat16")).spec
    assert (spec.extent, spec.precision) == (1.25, "bfloat16")


def test_standardised_patches_are_invariant_to_gain_and_offset_and_flat_ones_are_finite():
    torch.testing.assert_close(standardise(patches() * 0.5 + 0.2), standardise(patches()), rtol=1e-4, atol=1e-4)
    flat = torch.stack([torch.full((1, 32, 32), grey) for grey in (0.0, 0.3, 1.0)])
    assert standardise(flat).abs().max() < 1e-3
    assert Descriptor.build(dim=16).describe_patches(flat).isfinite().all()


def test_an_own_network_saves_and_loads(tmp_path):
    descriptor = Descriptor(Mean(), patch_size=8)
    assert (descriptor.dim, descriptor.describe_patches(patches(2, 8)).shape) == (3, (2, 3))
    path = descriptor.save(tmp_path / "mean.safetensors")
    assert Descriptor.load(path, network=Mean()).dim == 3
    for wrong in ({}, {"network": nn.Flatten()}):
        with pytest.raises(DataError):
            Descriptor.load(path, **wrong)


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = Descriptor.build(dim=16).save(tmp_path / "d.safetensors")
    before = path.read_bytes()

    def killed(self, content):
        write_bytes(self, content[:1000])
        raise KeyboardInterrupt

    write_bytes = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        Descriptor.build(dim=16).save(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("method", ["describe_patches", "__call__"])
@pytest.mark.parametrize(
    ("given", "error"),
    [
        (torch.zeros(5, 32, 32), ShapeError),
        (torch.zeros(5, 1, 64, 64), ShapeError),
        (torch.zeros(5, 3, 32, 32), ShapeError),
        (torch.zeros(1, 1, 32, 32, dtype=torch.uint8), ArgumentError),
        (np.zeros((1, 1, 32, 32)), ArgumentError),
    ],
    ids=["no channel", "larger", "colour", "bytes", "array"],
)
def test_patches_of_the_wrong_shape_or_type_are_an_error(method, given, error):
    with pytest.raises(error):
        getattr(Descriptor(ANY_SIZE, 32), method)(given)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: Descriptor(nn.Conv2d(1, 4, 3), patch_size=8), ShapeError),
        (lambda: Descriptor(Mean(), patch_size=8, kind="binary"), ArgumentError),
        (lambda: Descriptor.build("resnet"), ArgumentError),
        (lambda: Descriptor.build(dims=16), ArgumentError),
        (lambda: Descriptor.build(dropout=1.5), ArgumentError),
        (lambda: Descriptor.build(kind="trits"), ArgumentError),
    ],
)
def test_networks_and_settings_that_cannot_describe_are_an_error(build, error):
    with pytest.raises(error):
        build()


def save_with_network(path, name):
    descriptor = Descriptor.build(dim=16)
    descriptor.spec = descriptor.spec.model_copy(update={"network": name})
    return descriptor.save(path)


@pytest.mark.parametrize("name", ["subprocess:Popen", "doap.networks:PatchNetwork", "torch.nn:Linear", "sys:path"])
def test_weights_cannot_name_a_class_that_is_not_a_network(tmp_path, name):
    with pytest.raises(DataError):
        Descriptor.load(save_with_network(tmp_path / "d.safetensors", name))


def test_weights_do_not_import_through_a_module_that_loads_its_attributes_lazily(tmp_path, monkeypatch):
    asked, module = [], ModuleType("lazy")
    module.__getattr__ = asked.append
    monkeypatch.setitem(sys.modules, "lazy", module)
    path = save_with_network(tmp_path / "d.safetensors", "lazy:Network")
    with pytest.raises(DataError):
        Descriptor.load(path)
    assert "Network" not in asked


@pytest.mark.parametrize(
    "text",
    [
        None,
        "[]",
        '"text"',
        "[" * 100_000,
        '{"format": 1}',
        '{"format": 1, "spec": []}',
        '{"format": 1, "spec": {"network": "l2net"}}',
        json.dumps({"spec": SPEC}),
        json.dumps({"format": 2, "spec": SPEC}),
        json.dumps({"format": 1, "spec": SPEC, "ledger": 5}),
    ],
)
def test_metadata_of_another_form_are_refused(tmp_path, text):
    save_file(WEIGHTS, tmp_path / "d.safetensors", text and {"doap": text})
    with pytest.raises(DataError, match=r"d\.safetensors: "):
        doap.load(tmp_path / "d.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"dim": 150_000}, "dim": 150_000},
        {"arguments": {"dim": 16, "inner": 150_000}},
        {"arguments": {"dim": 60_000}, "dim": 60_000},
        {"arguments": {"dim": 10**30}},
        {"arguments": {"dim": "many"}},
        {"arguments": [16]},
        {"arguments": {"colour": 1}},
        {"colour": 1},
        {"dim": 10**6},
        {"patch_size": 10**6},
        {"extent": -1},
        {"kind": "trits"},
        {"kind": None},
        {"network": "resnet"},
        {"network": ["l2net"]},
    ],
)
def test_hostile_metadata_are_refused_before_a_network_is_built(tmp_path, monkeypatch, change):
    header = {"format": 1, "spec": {**SPEC, **change}}
    save_file(WEIGHTS, tmp_path / "d.safetensors", {"doap": json.dumps(header)})
    monkeypatch.setattr(Descriptor, "build", None)
    with pytest.raises(DataError, match=r"d\.safetensors: "):
        doap.load(tmp_path / "d.safetensors")


def test_weights_of_another_width_are_refused(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors", {"doap": json.dumps({"format": 1, "spec": SPEC})})
    header = {"doap": json.dumps({"format": 1, "spec": {**SPEC, "dim": 24}})}
    save_file(WEIGHTS, tmp_path / "b.safetensors", header)
    for name in "ab":
        with pytest.raises(DataError, match=rf"{name}\.safetensors: "):
            doap.load(tmp_path / f"{name}.safetensors")


@pytest.mark.slow
def test_threads_describe_with_a_network_in_training_mode_and_change_nothing():
    torch.manual_seed(0)
    descriptor = Descriptor.build(dim=16)
    descriptor(patches(16))
    next(module for module in descriptor.modules() if isinstance(module, nn.BatchNorm2d)).eval()
    modes = [module.training for module in descriptor.modules()]
    expected = copy.deepcopy(descriptor).eval().describe_patches(patches(300))
    before = {name: tensor.clone() for name, tensor in descriptor.state_dict().items()}
    with ThreadPoolExecutor(3) as pool:
        described = list(pool.map(lambda _: descriptor.describe_patches(patches(300)), range(12)))
    assert all(torch.equal(one, expected) for one in described)
    assert [module.training for module in descriptor.modules()] == modes
    after = descriptor.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


class Fails(Mean):
    """A network that raises an error for more than some patches."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, patches):
        if len(patches) > self.limit:
            raise RuntimeError("out of memory")
        return super().forward(patches)


@pytest.mark.parametrize("limit", [0, 1])
def test_an_error_inside_the_network_leaves_it_in_training_mode(limit):
    network = Fails(limit)
    with pytest.raises(RuntimeError, match="out of memory"):
        Descriptor(network, 32).describe_patches(patches())
    assert network.training
