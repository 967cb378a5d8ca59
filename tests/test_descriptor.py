"""`Descriptor`: describing patches, saving and loading."""

import copy
import json
import re
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
from doap.descriptor import SHIPPED, Descriptor, standardise

SPEC = Descriptor.build(dim=16).spec.model_dump()


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
    assert described.shape == shape
    assert described.dtype == dtype
    assert torch.equal(described, descriptor.describe_patches(patches(5, back.patch_size)))
    assert (back.dim, back.kind, back.patch_size) == (64, kind, descriptor.patch_size)
    assert back.metadata == {"recipe": {"steps": 3}, "ledger": ["CC0"], "version": doap.__version__}
    assert back.spec == descriptor.spec


def test_a_saved_file_has_the_default_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    assert Descriptor.build(dim=16).save(tmp_path / "d").stat().st_mode == plain.stat().st_mode


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
@pytest.mark.parametrize("name", SHIPPED)
def test_torch_exports_a_descriptor_for_any_number_of_patches(tmp_path, name):
    descriptor = Descriptor.load(name).to(memory_format=torch.contiguous_format)
    program = torch.export.export(descriptor, (patches(2),), dynamic_shapes=({0: torch.export.Dim("N")},))
    torch.export.save(program, tmp_path / "d.pt2")
    again = torch.export.load(tmp_path / "d.pt2").module()
    for number in (1, 77):
        torch.testing.assert_close(again(patches(number)), descriptor(patches(number)), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_bfloat16_changes_describe_a_little_and_training_not_at_all(name):
    given = patches(200)
    exact, fast = (Descriptor.load(name, precision=precision) for precision in ("float32", "bfloat16"))
    one, other = exact.describe_patches(given), fast.describe_patches(given)
    assert other.dtype == one.dtype
    assert not torch.equal(one, other)
    if fast.kind == "real":
        torch.testing.assert_close(other.norm(dim=1), torch.ones(200))
        assert float((one - other).norm(dim=1).max()) < 0.05
    else:
        assert np.unpackbits((one ^ other).numpy(), axis=1).sum(1).max() < 16
    assert torch.equal(fast(given), exact(given))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(exact.describe_patches(given), one)


@pytest.mark.slow
@pytest.mark.parametrize("supported", [True, False])
def test_auto_precision_is_bfloat16_where_it_was_measured_and_is_fast(tmp_path, monkeypatch, supported):
    monkeypatch.setattr("doap._support.device.multiplies_bfloat16", lambda device: supported)
    torch.manual_seed(0)
    plain, given = Descriptor.build(dim=16), patches(20)
    measured = doap.load(plain.save(tmp_path / "d.safetensors", precision="bfloat16"))
    assert (plain.spec.precision, measured.spec.precision) == ("float32", "bfloat16")
    assert torch.equal(measured.describe_patches(given), plain.describe_patches(given)) != supported
    with torch.autocast("cpu", torch.bfloat16):
        in_autocast = plain.describe_patches(given)
    measured.precision = "bfloat16"
    assert torch.equal(in_autocast, measured.describe_patches(given))


def test_an_invalid_spec_is_not_saved(tmp_path):
    with pytest.raises(ArgumentError, match="precision: input should be 'float32' or 'bfloat16', got 'int3'"):
        Descriptor.build(dim=16).save(tmp_path / "d.safetensors", precision="int3")
    with pytest.raises(ArgumentError, match="extent: input should be greater than 0, got 0"):
        Descriptor.build(dim=16).save(tmp_path / "d.safetensors", extent=0)
    assert not list(tmp_path.iterdir())


def test_a_saved_extent_and_precision_become_part_of_the_spec(tmp_path):
    path = Descriptor.build(dim=16).save(tmp_path / "d.safetensors", extent=1.25, precision="bfloat16")
    assert (doap.load(path).spec.extent, doap.load(path).spec.precision) == (1.25, "bfloat16")


def test_the_batch_size_changes_nothing_and_the_training_mode_is_restored():
    descriptor = Descriptor.build(dim=16).train()
    whole = descriptor.describe_patches(patches(7))
    torch.testing.assert_close(descriptor.describe_patches(patches(7), batch_size=3), whole)
    assert descriptor.training


@pytest.mark.parametrize(("kind", "width"), [("real", 24), ("binary", 3)])
def test_zero_patches_give_zero_rows_of_the_right_width(kind, width):
    assert Descriptor.build(kind=kind, dim=24).describe_patches(patches(0)).shape == (0, width)


def test_descriptors_of_flat_patches_are_finite():
    flat = torch.stack([torch.full((1, 32, 32), grey) for grey in (0.0, 0.3, 1.0)])
    assert standardise(flat).abs().max() < 1e-3
    assert Descriptor.build(dim=16).describe_patches(flat).isfinite().all()


def test_standardised_patches_are_invariant_to_gain_and_offset():
    torch.testing.assert_close(standardise(patches() * 0.5 + 0.2), standardise(patches()), rtol=1e-4, atol=1e-4)


def test_an_own_network_saves_and_loads(tmp_path):
    descriptor = Descriptor(Mean(), patch_size=8)
    assert (descriptor.dim, descriptor.describe_patches(patches(2, 8)).shape) == (3, (2, 3))
    path = descriptor.save(tmp_path / "mean.safetensors")
    with pytest.raises(DataError, match=r"network None is not part of doap\. Pass it as network=\."):
        doap.load(path)
    assert doap.load(path, network=Mean()).dim == 3
    with pytest.raises(DataError, match=r"expected a network with D = 3 and patches of 8 pixels, got D = 64 and 8"):
        doap.load(path, network=nn.Flatten())


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
    ("given", "error", "message"),
    [
        (torch.zeros(5, 32, 32), ShapeError, r"expected \(N, 1, 32, 32\), got \(5, 32, 32\)"),
        (torch.zeros(5, 1, 64, 64), ShapeError, r"expected \(N, 1, 32, 32\), got \(5, 1, 64, 64\)"),
        (torch.zeros(5, 3, 32, 32), ShapeError, r"expected \(N, 1, 32, 32\), got \(5, 3, 32, 32\)"),
        (
            torch.zeros(1, 1, 32, 32, dtype=torch.uint8),
            ArgumentError,
            "expected floats in 0…1, got torch.uint8. Divide",
        ),
        (np.zeros((1, 1, 32, 32)), ArgumentError, r"expected a torch tensor \(N, 1, 32, 32\), got ndarray"),
    ],
    ids=["no channel", "larger", "colour", "bytes", "array"],
)
def test_patches_of_the_wrong_shape_or_type_are_an_error(method, given, error, message):
    # A network that accepts patches of any size.
    network = nn.Sequential(nn.Conv2d(1, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(error, match=f"patches: {message}"):
        getattr(Descriptor(network, 32), method)(given)


def test_float64_patches_are_converted_to_the_type_of_the_weights():
    descriptor = Descriptor.build(dim=16).eval()
    found = descriptor(patches().double())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, descriptor(patches()))


def test_repr_shows_the_spec_in_one_line():
    shown = repr(Descriptor.build("l2net", "binary", dim=64, extent=1.5))
    assert shown.startswith("Descriptor(network='l2net', arguments={'dim': 64, ")
    assert "kind='binary', dim=64, extent=1.5" in shown
    assert "\n" not in shown
    assert repr(Descriptor(Mean(), 32)).startswith("Descriptor(network='Mean', ")


def test_a_network_with_the_wrong_output_is_an_error():
    with pytest.raises(ShapeError, match=r"network: expected \(1, D\)"):
        Descriptor(nn.Conv2d(1, 4, 3), patch_size=8)
    with pytest.raises(ArgumentError, match="expected a multiple of 8 bits, got 3"):
        Descriptor(Mean(), patch_size=8, kind="binary")
    with pytest.raises(
        ArgumentError, match=r"network: expected one of l2net, l2net-st, fast or package.* got 'resnet'"
    ):
        Descriptor.build("resnet")


def test_unknown_settings_of_a_network_are_an_error():
    with pytest.raises(ArgumentError, match=r"unknown key 'dims'; did you mean 'dim'\?"):
        Descriptor.build(dims=16)
    with pytest.raises(ArgumentError, match=r"dropout: input should be less than 1, got 1\.5"):
        Descriptor.build(dropout=1.5)


def save_with_network(path, name):
    descriptor = Descriptor.build(dim=16)
    descriptor.spec = descriptor.spec.model_copy(update={"network": name})
    return descriptor.save(path)


@pytest.mark.parametrize("name", ["subprocess:Popen", "doap.networks:PatchNetwork", "torch.nn:Linear", "sys:path"])
def test_weights_cannot_name_a_class_that_is_not_a_network(tmp_path, name):
    with pytest.raises(DataError, match=f"{name}.*(expected a subclass of|lacks the attribute)"):
        Descriptor.load(save_with_network(tmp_path / "d.safetensors", name))


def test_weights_do_not_import_through_a_module_that_loads_its_attributes_lazily(tmp_path, monkeypatch):
    asked, module = [], ModuleType("lazy")
    module.__getattr__ = asked.append
    monkeypatch.setitem(sys.modules, "lazy", module)
    path = save_with_network(tmp_path / "d.safetensors", "lazy:Network")
    with pytest.raises(DataError, match="Import lazy first, or pass the network as network="):
        Descriptor.load(path)
    assert "Network" not in asked


def test_missing_and_damaged_files_are_an_error(tmp_path):
    with pytest.raises(DataError, match=r"absent\.safetensors: no such file"):
        Descriptor.load(tmp_path / "absent.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(np.random.default_rng(0).bytes(400))
    whole = Descriptor.build(dim=16).save(tmp_path / "d.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(whole.read_bytes()[:-100])
    for name in ("noise", "cut"):
        with pytest.raises(DataError, match=f"{name}.safetensors: not a safetensors file, or a damaged one"):
            doap.load(tmp_path / f"{name}.safetensors")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, 'not a doap descriptor (missing metadata key "doap"). Save it with Descriptor.save().'),
        ({"spec": SPEC}, 'missing key "format" in its metadata'),
        ({"format": 1}, 'missing key "spec" in its metadata'),
        ({"format": 2, "spec": SPEC}, "unknown format 2; this version of doap reads format 1. Update doap."),
        (
            {"format": 1, "spec": {**SPEC, "kind": "trits"}},
            "invalid spec: kind: input should be 'real' or 'binary', got 'trits'",
        ),
        ({"format": 1, "spec": {**SPEC, "colour": 1}}, "unknown key 'colour'; known keys are network, arguments"),
        ({"format": 1, "spec": {"network": "l2net"}}, "arguments: field required"),
        ({"format": 1, "spec": {**SPEC, "network": "resnet"}}, "network 'resnet' is not part of doap"),
        ({"format": 1, "spec": {**SPEC, "arguments": {"dims": 16}}}, "unknown key 'dims'; did you mean 'dim'?"),
        ({"format": 1, "spec": {**SPEC, "dim": 24}}, "the weights do not fit the network"),
        (
            {"format": 1, "spec": {**SPEC, "arguments": {"dim": 10**30}}},
            "dim: input should be less than or equal to 65536",
        ),
        (
            {"format": 1, "spec": {**SPEC, "arguments": {"inner": 10**30}}},
            "inner: input should be less than or equal to 65536",
        ),
        ({"format": 1, "spec": SPEC}, "the weights do not fit the network 'l2net'"),
    ],
)
def test_invalid_metadata_are_an_error(tmp_path, metadata, message):
    stored = None if metadata is None else {"doap": json.dumps(metadata)}
    save_file({"a": torch.zeros(1)}, tmp_path / "d.safetensors", metadata=stored)
    with pytest.raises(DataError, match=re.escape(message)):
        doap.load(tmp_path / "d.safetensors")


@pytest.mark.slow
def test_threads_describe_with_a_network_in_training_mode_and_change_nothing():
    torch.manual_seed(0)
    descriptor = Descriptor.build(dim=16)
    descriptor(patches(16))
    expected = copy.deepcopy(descriptor).eval().describe_patches(patches(300))
    before = {name: tensor.clone() for name, tensor in descriptor.state_dict().items()}
    with ThreadPoolExecutor(3) as pool:
        described = list(pool.map(lambda _: descriptor.describe_patches(patches(300), batch_size=20), range(12)))
    assert all(torch.equal(one, expected) for one in described)
    assert all(module.training for module in descriptor.modules())
    after = descriptor.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_describe_keeps_frozen_parts_of_a_network_frozen():
    descriptor = Descriptor.build(dim=16)
    frozen = next(module for module in descriptor.modules() if isinstance(module, nn.BatchNorm2d))
    frozen.eval()
    descriptor.describe_patches(patches())
    assert descriptor.training
    assert not frozen.training


class Fails(Mean):
    """A network that raises an error for more than one patch."""

    def forward(self, patches):
        if len(patches) > 1:
            raise RuntimeError("out of memory")
        return super().forward(patches)


def test_an_error_inside_describe_leaves_the_network_in_training_mode():
    descriptor = Descriptor(Fails(), 32)
    with pytest.raises(RuntimeError, match="out of memory"):
        descriptor.describe_patches(patches())
    assert descriptor.training
    assert descriptor.network.training


def test_an_error_while_the_output_is_measured_leaves_the_network_in_training_mode():
    class Broken(nn.Module):
        def forward(self, patches):
            raise RuntimeError("out of memory")

    network = Broken()
    with pytest.raises(RuntimeError, match="out of memory"):
        Descriptor(network, 32)
    assert network.training


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"dim": 150_000}, "dim": 150_000},
        {"arguments": {"dim": 16, "inner": 150_000}},
        {"arguments": {"dim": 60_000}, "dim": 60_000},
        {"arguments": {"dim": "many"}},
        {"arguments": [16]},
        {"arguments": {"colour": 1}},
        {"patch_size": 10**6},
        {"extent": -1},
        {"kind": None},
        {"network": ["l2net"]},
    ],
)
def test_hostile_metadata_are_refused_before_a_network_is_built(tmp_path, monkeypatch, change):
    weights = {name: tensor.contiguous() for name, tensor in Descriptor.build(dim=16).network.state_dict().items()}
    header = {"format": 1, "spec": {**SPEC, **change}}
    save_file(weights, tmp_path / "d.safetensors", {"doap": json.dumps(header)})
    monkeypatch.setattr(Descriptor, "build", None)
    with pytest.raises(DataError, match=r"d\.safetensors: "):
        doap.load(tmp_path / "d.safetensors")


@pytest.mark.parametrize("text", ["[]", '"text"', "[" * 100_000, '{"format": 1}', '{"format": 1, "spec": []}'])
def test_metadata_of_another_form_are_refused(tmp_path, text):
    save_file({"weight": torch.zeros(1)}, tmp_path / "d.safetensors", {"doap": text})
    with pytest.raises(DataError, match=r"d\.safetensors: "):
        doap.load(tmp_path / "d.safetensors")


def test_a_ledger_of_another_form_is_refused(tmp_path):
    path = Descriptor.build(dim=16).save(tmp_path / "d.safetensors", ledger=5)
    with pytest.raises(DataError, match="ledger"):
        doap.load(path)
