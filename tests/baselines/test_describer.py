"""Anybody's own function of patches, and the marks by which describers are told apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from doap.baselines import Describer, DetectsKeypoints, ImageDescriber, dsp_sift, fingerprint, from_function, rootsift
from doap.descriptor import Descriptor
from doap.errors import ShapeError


def test_a_descriptor_is_a_describer_of_patches():
    descriptor: Describer = Descriptor.build(dim=16)
    assert isinstance(descriptor, Describer)
    assert not isinstance(descriptor, ImageDescriber)


def test_one_that_looks_at_the_photo_is_known_by_it_and_so_is_one_that_cannot_do_without():
    assert isinstance(rootsift(), ImageDescriber)
    assert not isinstance(rootsift(), DetectsKeypoints)
    assert isinstance(dsp_sift(), DetectsKeypoints)


def test_a_function_of_patches_is_a_describer_too():
    signs = from_function(lambda patches: np.packbits(patches[:, 0, :8, 0].numpy() > 0.5, axis=1), name="signs")
    assert isinstance(signs, Describer)
    assert (signs.dim, signs.kind, signs.patch_size) == (8, "binary", 32)
    assert signs.describe(torch.ones(2, 1, 32, 32)).tolist() == [[255], [255]]


def test_a_function_never_sees_none_or_thousands():
    seen = []
    means = from_function(lambda patches: (seen.append(len(patches)), patches.mean(dim=(2, 3)))[1], patch_size=8)
    patches = torch.rand(1100, 1, 8, 8)
    assert torch.equal(means.describe(patches), patches.mean(dim=(2, 3)))
    assert means.describe(patches[:0]).shape == (0, 1)
    assert min(seen) == 1
    assert max(seen) == 512


def test_a_function_that_loses_patches_is_told():
    with pytest.raises(ShapeError, match=r"function of the patches: expected \(3, 1024\), got \(1, 1024\)"):
        from_function(lambda patches: patches[:1].flatten(1)).describe(torch.zeros(3, 1, 32, 32))


def test_a_function_that_is_none_of_patches_is_told():
    with pytest.raises(ShapeError, match=r"function of one patch: expected \(1, D\), got \(\)"):
        from_function(lambda patches: patches.mean())


def test_a_fingerprint_tells_weights_apart_and_nothing_else():
    torch.manual_seed(0)
    one, other = Descriptor.build(dim=16), Descriptor.build(dim=16)
    assert fingerprint(one) == fingerprint(one) != fingerprint(other)
    other.load_state_dict(one.state_dict())
    assert fingerprint(one) == fingerprint(other)
