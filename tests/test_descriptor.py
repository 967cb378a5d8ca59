"""Descriptors: what they describe, and what comes back from their file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import doap
from doap.descriptor import Descriptor, standardise
from doap.errors import ArgumentError, DataError, ShapeError


def patches(number=5, size=32):
    return torch.rand(number, 1, size, size, generator=torch.Generator().manual_seed(0))


class Mean(nn.Module):
    """A network of somebody else's."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, patches):
        return patches.mean(dim=(1, 2, 3))[:, None] * self.scale


@pytest.mark.parametrize(
    ("kind", "shape", "dtype"), [("real", (5, 64), torch.float32), ("binary", (5, 8), torch.uint8)]
)
@pytest.mark.parametrize("network", ["l2net", "l2net-st"])
def test_file_gives_back_the_same_descriptor(tmp_path, network, kind, shape, dtype):
    torch.manual_seed(0)
    descriptor = Descriptor.build(network, kind, dim=64)
    descriptor(patches(8, descriptor.patch_size))  # moves the running statistics, which must be saved too
    path = descriptor.save(tmp_path / "d.safetensors", recipe={"steps": 3}, ledger=["CC0"])
    back = doap.load(path)
    described = back.describe(patches(5, back.patch_size))
    assert described.shape == shape
    assert described.dtype == dtype
    assert torch.equal(described, descriptor.describe(patches(5, back.patch_size)))
    assert (back.dim, back.kind, back.patch_size) == (64, kind, descriptor.patch_size)
    assert (back.metadata["recipe"], back.metadata["ledger"]) == ({"steps": 3}, ["CC0"])


def test_a_file_may_be_read_by_whom_the_user_lets_read(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    assert Descriptor.build(dim=16).save(tmp_path / "d").stat().st_mode == plain.stat().st_mode


def test_half_the_space_and_nearly_the_same_descriptor(tmp_path):
    torch.manual_seed(0)
    descriptor = Descriptor.build(dim=128)
    descriptor(patches(8))
    whole, half = descriptor.save(tmp_path / "whole"), descriptor.save(tmp_path / "half", half=True)
    assert half.stat().st_size < 0.51 * whole.stat().st_size
    back = doap.load(half)
    assert {parameter.dtype for parameter in back.parameters()} == {torch.float32}
    torch.testing.assert_close(back.describe(patches()), descriptor.describe(patches()), atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", ["doap-128", "doap-256bit"])
def test_torch_exports_it_for_any_number_of_patches(tmp_path, name):
    descriptor = doap.load(name).to(memory_format=torch.contiguous_format)
    program = torch.export.export(descriptor, (patches(2),), dynamic_shapes=({0: torch.export.Dim("N")},))
    torch.export.save(program, tmp_path / "d.pt2")
    again = torch.export.load(tmp_path / "d.pt2").module()
    for number in (1, 77):
        torch.testing.assert_close(again(patches(number)), descriptor(patches(number)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["doap-128", "doap-256bit"])
def test_a_file_may_ask_for_bfloat16(tmp_path, name):
    exact, given = doap.load(name), patches(200)
    fast = doap.load(exact.save(tmp_path / "fast.safetensors", precision="bfloat16"))
    one, other = exact.describe(given), fast.describe(given)
    assert other.dtype == one.dtype
    assert not torch.equal(one, other)
    if fast.kind == "real":
        torch.testing.assert_close(other.norm(dim=1), torch.ones(200))
        assert float((one - other).norm(dim=1).max()) < 0.05
    else:
        assert np.unpackbits((one ^ other).numpy(), axis=1).sum(1).max() < 16
    # Only use is faster: what is trained or exported stays as it is.
    assert torch.equal(fast(given), exact(given))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(exact.describe(given), other)


def test_an_unknown_precision_is_named(tmp_path):
    path = doap.load("doap-128").save(tmp_path / "fast.safetensors", precision="int3")
    with pytest.raises(ArgumentError, match="precision: expected one of float32, bfloat16, got 'int3'"):
        doap.load(path).describe(patches())


def test_batches_change_nothing_and_training_mode_comes_back():
    descriptor = Descriptor.build(dim=16).train()
    whole = descriptor.describe(patches(7))
    torch.testing.assert_close(descriptor.describe(patches(7), batch=3), whole)
    assert descriptor.training


@pytest.mark.parametrize(("kind", "width"), [("real", 24), ("binary", 3)])
def test_no_patches_give_no_rows_of_the_networks_own_width(kind, width):
    assert Descriptor.build(kind=kind, dim=24).describe(patches(0)).shape == (0, width)


def test_flat_patches_are_described_without_nan():
    flat = torch.stack([torch.full((1, 32, 32), grey) for grey in (0.0, 0.3, 1.0)])
    assert standardise(flat).abs().max() < 1e-3
    assert Descriptor.build(dim=16).describe(flat).isfinite().all()


def test_gain_and_offset_do_not_change_a_patch():
    torch.testing.assert_close(standardise(patches() * 0.5 + 0.2), standardise(patches()), rtol=1e-4, atol=1e-4)


def test_anybodys_network_fits_saves_and_loads(tmp_path):
    descriptor = Descriptor(Mean(), patch_size=8)
    assert (descriptor.dim, descriptor.describe(patches(2, 8)).shape) == (3, (2, 3))
    path = descriptor.save(tmp_path / "mean.safetensors")
    with pytest.raises(DataError, match=r"network None is not one of doap's; give it as load\(path, network=…\)"):
        doap.load(path)
    assert doap.load(path, network=Mean()).dim == 3


def test_killed_save_leaves_the_old_file(tmp_path, monkeypatch):
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


def test_wrong_patches_are_named():
    descriptor = Descriptor.build(dim=16)
    with pytest.raises(ShapeError, match=r"patches: expected \(N, 1, 32, 32\), got \(5, 32, 32\)"):
        descriptor.describe(patches().squeeze(1))
    with pytest.raises(ArgumentError, match=r"patches: expected floats in 0…1, got torch.uint8; divide by 255"):
        descriptor.describe(torch.zeros(1, 1, 32, 32, dtype=torch.uint8))


def test_networks_that_are_not_of_patches_are_refused():
    with pytest.raises(ShapeError, match=r"network: expected \(1, D\)"):
        Descriptor(nn.Conv2d(1, 4, 3), patch_size=8)
    with pytest.raises(ArgumentError, match="expected a multiple of 8 bits, got 3"):
        Descriptor(Mean(), patch_size=8, kind="binary")
    with pytest.raises(ArgumentError, match="network: expected one of l2net, l2net-st, got 'resnet'"):
        Descriptor.build("resnet")


def test_damaged_and_foreign_files_are_named(tmp_path):
    with pytest.raises(DataError, match="got nothing there"):
        doap.load(tmp_path / "absent.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(np.random.default_rng(0).bytes(400))
    with pytest.raises(DataError, match="got a damaged one"):
        doap.load(tmp_path / "noise.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(DataError, match="expected doap's metadata beside the weights, got none"):
        doap.load(tmp_path / "foreign.safetensors")
    whole = Descriptor.build(dim=16).save(tmp_path / "d.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(DataError, match="got a damaged one"):
        doap.load(tmp_path / "cut.safetensors")
