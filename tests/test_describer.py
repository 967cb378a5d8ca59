"""The interface `Describer`, functions as describers, and fingerprints."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from doap.baselines import dsp_sift, rootsift
from doap.describer import Describer, DetectsKeypoints, ImageDescriber, fingerprint, from_function
from doap.descriptor import Descriptor, DescriptorSpec
from doap.errors import ArgumentError, ShapeError


class Scaled(nn.Module):
    """A network without parameters."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, patches):
        return patches.flatten(1)[:, :8] * self.factor


def test_a_descriptor_describes_patches_but_not_images():
    descriptor: Describer = Descriptor.build(dim=16)
    assert isinstance(descriptor, Describer)
    assert not isinstance(descriptor, ImageDescriber)


def test_the_protocols_separate_baselines_that_read_the_image():
    assert isinstance(rootsift(), ImageDescriber)
    assert not isinstance(rootsift(), DetectsKeypoints)
    assert isinstance(dsp_sift(), DetectsKeypoints)


def test_the_extent_is_part_of_the_protocol():
    class WithoutExtent:
        patch_size, dim, kind = 32, 128, "real"

        def describe(self, patches):
            return patches.flatten(1)

    assert not isinstance(WithoutExtent(), Describer)
    assert rootsift().extent == dsp_sift().extent == 1.0


def test_a_function_of_patches_becomes_a_describer():
    signs = from_function(lambda patches: np.packbits(patches[:, 0, :8, 0].numpy() > 0.5, axis=1), name="bits")
    assert isinstance(signs, Describer)
    assert (signs.dim, signs.kind, signs.patch_size, signs.extent) == (8, "binary", 32, 1.0)
    assert signs.describe(torch.ones(2, 1, 32, 32)).tolist() == [[255], [255]]
    assert from_function(lambda patches: patches.flatten(1), extent=1.5).extent == 1.5


def test_a_function_is_called_with_1_to_512_patches():
    sizes = []
    means = from_function(lambda patches: (sizes.append(len(patches)), patches.mean(dim=(2, 3)))[1], patch_size=8)
    patches = torch.rand(1100, 1, 8, 8)
    assert torch.equal(means.describe(patches), patches.mean(dim=(2, 3)))
    assert means.describe(patches[:0]).shape == (0, 1)
    assert min(sizes) == 1
    assert max(sizes) == 512


def test_a_function_that_drops_patches_is_an_error():
    with pytest.raises(ShapeError, match=r"function of the patches: expected \(3, 1024\), got \(1, 1024\)"):
        from_function(lambda patches: patches[:1].flatten(1)).describe(torch.zeros(3, 1, 32, 32))


def test_a_function_that_returns_no_rows_is_an_error():
    with pytest.raises(ShapeError, match=r"function of one patch: expected \(1, D\), got \(\)"):
        from_function(lambda patches: patches.mean())


def fails(patches):
    raise ZeroDivisionError("no\nreason")


def pixels(patches, dtype=torch.float32):
    return (255 * patches[:, 0, 0, :8]).to(dtype)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fails, r"f: expected descriptors of patches \(1, 1, 32, 32\), but the function raised ZeroDivisionError: no"),
        (lambda patches: None, "f: expected a tensor or array of floats, or uint8 for bits, got NoneType"),
        (lambda patches: pixels(patches, torch.complex64), "got torch.complex64"),
        (lambda patches: pixels(patches, torch.int64), "got torch.int64"),
        (lambda patches: np.array([[None]]), "raised TypeError: can't convert np.ndarray of type numpy.object_"),
        (lambda patches: pixels(patches)[:, :0], r"function of one patch: expected \(1, D\) with D ≥ 1, got \(1, 0\)"),
    ],
)
def test_a_function_without_descriptors_is_an_error(function, words):
    with pytest.raises((ArgumentError, ShapeError), match=words):
        from_function(function, name="f")


@pytest.mark.parametrize(("first", "later"), [(torch.uint8, torch.float32), (torch.float32, torch.uint8)])
def test_a_function_that_changes_its_type_is_an_error(first, later):
    changing = from_function(lambda patches: pixels(patches, first if len(patches) == 1 else later))
    with pytest.raises(ArgumentError, match=f"as for one patch, got {later}"):
        changing.describe(torch.zeros(2, 1, 32, 32))


@pytest.mark.parametrize(
    "settings", [{name: value} for name in ("extent", "patch_size") for value in (-1, 0, float("nan"), None, "wide")]
)
def test_a_function_with_an_impossible_patch_is_an_error(settings):
    with pytest.raises(ArgumentError, match=f"{next(iter(settings))}: input should be"):
        from_function(pixels, **settings)


def test_a_function_needs_no_gradients():
    layer = nn.Linear(1024, 4)
    described = from_function(lambda patches: layer(patches.flatten(1))).describe(torch.rand(3, 1, 32, 32))
    assert not described.requires_grad


def test_a_fingerprint_depends_on_weights_and_spec_only():
    torch.manual_seed(0)
    one, other = Descriptor.build(dim=16), Descriptor.build(dim=16)
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)
    other.load_state_dict(one.state_dict())
    assert fingerprint(one) == fingerprint(other)
    other.precision = "bfloat16"
    other.spec = other.spec.model_copy(update={"precision": "bfloat16"})
    assert fingerprint(one) == fingerprint(other)
    other.spec = other.spec.model_copy(update={"extent": 1.5})
    assert fingerprint(one) != fingerprint(other)


class LaterSpec(DescriptorSpec):
    """The spec of a later version, with one more field."""

    colour: str | None = None


def test_a_field_that_is_added_to_the_spec_does_not_change_the_fingerprint_of_shipped_weights():
    descriptor = Descriptor.load("doap-fast")
    before = descriptor.fingerprint()
    assert before == "311dc803c4cf4e5eece637a269387b5d5244ab0e6c735bf0e802dab1567ffb40"
    descriptor.spec = LaterSpec(**descriptor.spec.model_dump())
    assert descriptor.fingerprint() == before
    descriptor.spec = descriptor.spec.model_copy(update={"colour": "rgb"})
    assert descriptor.fingerprint() != before


def test_the_fingerprint_of_an_own_network_depends_on_its_output():
    prints = {fingerprint(Descriptor(Scaled(factor), patch_size=8)) for factor in (1.0, 1.0, 2.0)}
    assert len(prints) == 2


def test_the_fingerprint_of_a_function_depends_on_its_output_and_extent():
    functions = [
        from_function(lambda patches, f=f: f * patches.flatten(1), extent=e) for f, e in ((1, 1), (2, 1), (1, 2))
    ]
    assert len({fingerprint(one) for one in functions}) == 3
